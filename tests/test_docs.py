"""The blocks of code in the pages run as they stand, and the site has every page and public name."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import agentq
from agentq.cli.app import COMMANDS, searching
from agentq.store.run import RunStore
from tests.records_factory import make_trajectory, make_tree

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("docs/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "AGENTS.md"]
# compiled only: what needs a downloaded model, a GPU or a package that is not installed, and agents' own code
LARGE = ("Qwen", "cuda", "apis.", "reasoning_gym")


def blocks(kind: str) -> list[pytest.ParameterSet]:  # type: ignore[name-defined]
    found = [
        (page, number, block)
        for page in sorted(PAGES)
        for number, block in enumerate(re.findall(rf"^```{kind}\n(.*?)^```$", page.read_text(), re.M | re.S))
    ]
    return [pytest.param(block, id=f"{page.name}-{number}") for page, number, block in found]


def assert_names_exist(block: str) -> None:
    """What a block imports from agentq is there, and so are the attributes that it takes of that."""
    tree, known = ast.parse(block), dict[str, Any]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "agentq":
            for name in node.names:
                known[name.asname or name.name] = getattr(import_module(str(node.module)), name.name, None) or (
                    import_module(f"{node.module}.{name.name}")
                )
        elif isinstance(node, ast.Import):
            known |= {name.name: import_module(name.name) for name in node.names if name.name == "agentq"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in known:
            assert hasattr(known[node.value.id], node.attr), f"{node.value.id}.{node.attr}"


def test_a_block_that_only_compiles_may_not_name_what_is_not_there() -> None:
    assert_names_exist("from agentq.recipes import agent_q\nagent_q.loss")
    with pytest.raises(AssertionError, match=r"agent_q\.items"):
        assert_names_exist("from agentq.recipes import agent_q\nagent_q.items(1)")
    with pytest.raises(ModuleNotFoundError):
        assert_names_exist("from agentq.recipes import agent_qq")


def anchor_of(heading: str) -> str:
    """As GitHub and mkdocs make it."""
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower().replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")


def test_links_lead_to_pages_and_headings() -> None:
    for page in PAGES:
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            led = page.parent / file if file else page
            assert led.exists(), f"{page.name}: {target}"
            if anchor:
                headings = re.findall(r"^#+ (.+)$", led.read_text(), re.M)
                assert anchor in map(anchor_of, headings), f"{page.name}: {target}"


@pytest.mark.rest
@pytest.mark.parametrize("block", blocks("python"))
def test_a_block_of_python_runs(block: str, tmp_path: Path) -> None:
    if any(word in block for word in LARGE):
        assert_names_exist(block)
        return
    if "runs/first" in block:
        pytest.importorskip("pandas")
        pytest.importorskip("pyarrow")
        with RunStore.open(tmp_path / "runs" / "first", {}) as store:
            store.add_tree("rft/round1/collect", make_tree(3, num_nodes=20))
            store.add_trajectory("base/eval", "5/0", make_trajectory(5))
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def shown_commands() -> list[tuple[str, str]]:
    """The lines `agentq ...` in the pages, with their page; without comments and shell variables."""
    found = []
    for page in sorted(PAGES):
        text = page.read_text()
        lines = re.findall(r"^    (agentq .*)$", text, re.M) + re.findall(r"`(agentq [^`\n]+)`", text)
        found += [(page.name, re.split(r"   +|  # ", line)[0].strip()) for line in lines]
    return found


def test_every_command_in_the_pages_is_one_that_agentq_takes() -> None:
    import shlex

    wrong = []
    for page, line in shown_commands():
        try:
            words = [word.strip("[]") for word in shlex.split(line)[1:]]
        except ValueError:  # a line that the page cuts
            continue
        name = " ".join(words[: 2 if words[:1] == ["env"] else 1])
        if not words or not re.fullmatch(r"[a-z ]+", name) or "..." in words or "*" in line:
            continue  # a pattern, as in `agentq COMMAND --help`
        if name not in COMMANDS:
            wrong.append((page, line))
            continue
        options = [option for names, _ in COMMANDS[name].arguments for option in names if option.startswith("--")]
        for word in searching(words[name.count(" ") + 1 :]):
            option = word.partition("=")[0]
            if option.startswith("--") and "." not in option and option not in (*options, "--help", "--no-call"):
                wrong.append((page, line))
    assert wrong == []


def test_settings_in_the_pages_exist() -> None:
    from agentq.recipes.load import settings
    from agentq.recipes.settings import COMMANDS as MODELS

    known = {s.key for model in MODELS.values() for s in settings(model)}
    found = {
        (page.name, key)
        for page in PAGES
        for key in re.findall(r"--([a-z]+\.[a-z_]+)", page.read_text())
        if not key.startswith(("vllm.", "section."))
    }
    assert {(page, key) for page, key in found if key not in known} == set()


def test_the_site_has_every_page_and_every_public_name() -> None:
    site = (ROOT / "mkdocs.yml").read_text()
    for page in ROOT.glob("docs/*.md"):
        assert page.name in site, page
    reference = (ROOT / "docs" / "api.md").read_text()
    for name in agentq.__all__:
        assert f".{name}\n" in reference or f"`{name}`" in reference, name
    for link in re.findall(r"\]\(([^)]+)\)", (ROOT / "llms.txt").read_text()):
        assert (ROOT / link).is_file(), link


def test_a_method_is_described_in_the_pages() -> None:
    from agentq.recipes.settings import RECIPES

    text = (ROOT / "docs" / "methods.md").read_text()
    assert [name for name in RECIPES if f"| `{name}` |" not in text] == []
