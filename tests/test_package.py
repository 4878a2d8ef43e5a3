"""The package as a whole: what importing it costs, which way imports run, and what an unbuilt core says."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import agentq

PACKAGE = Path(agentq.__file__).parent
# What environments in another Python import, which has neither agentq nor what agentq needs.
ELSEWHERE = [
    *(f"agentq.envs.remote.{name}" for name in ("start", "env_process", "browsergym", "axtree", "textworld_games")),
    *(f"agentq.envs.browser.{name}" for name in ("wire", "processes")),
    "agentq.envs.contract",
    "agentq.errors",
]
HEAVY = ("torch", "transformers", "playwright", "openai", "vllm", "peft", "accelerate")

# Each folder with the folders it may import from; the modules of OPEN_TO_ALL are open to all. From DESIGN: types,
# errors, config, plugins <- agent <- envs | policies | critics <- searching | store | credit <- learn <- the rest.
AGENT = {"agent"}
SENSES = AGENT | {"envs", "policies", "critics"}
MIDDLE = SENSES | {"_core", "searching", "store", "credit"}
ALLOWED = {
    "agent": AGENT,
    "envs": AGENT | {"envs"},
    "policies": AGENT | {"_core", "policies"},
    "critics": AGENT | {"critics", "policies"},
    "searching": MIDDLE,
    "store": MIDDLE,
    "credit": MIDDLE,
    "learn": MIDDLE | {"learn"},
}
OPEN_TO_ALL = {
    "types",
    "errors",
    "config",
    "model_settings",
    "run_settings",
    "eval_settings",
    "plugins",
    "seeds",
    "error_kinds",
    "picture",
    "verbs",
}


def python_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imported_modules(source: Path) -> set[str]:
    """Every dotted name that an import statement anywhere in the file brings in, function bodies included."""
    found = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source.relative_to(PACKAGE)}: imports must be absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_import_loads_nothing_heavy():
    done = run("import agentq, sys; agentq.Forest, agentq.Task; print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "agentq" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_import_is_fast_and_loads_no_numpy():
    run("import agentq")  # once, to write the bytecode
    code = "import sys, time; t = time.process_time(); import agentq; t = time.process_time() - t"
    code += "; print(t, 'numpy' in sys.modules)"
    found = [run(code).stdout.split() for _ in range(5)]
    assert min(float(seconds) for seconds, _ in found) <= 0.1
    assert {numpy for _, numpy in found} == {"False"}


def test_every_public_name_resolves():
    assert sorted(agentq.__all__) == list(agentq.__all__) and len(agentq.__all__) <= 25
    for name in agentq.__all__:
        assert getattr(agentq, name).__name__ == name
    assert set(agentq.__all__) <= set(dir(agentq))
    with pytest.raises(AttributeError, match="module 'agentq' has no attribute 'forest'"):
        _ = agentq.forest


def test_public_names_are_the_same_for_readers_type_checkers_and_at_run_time():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    typed = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in typed.body if isinstance(node, ast.ImportFrom)]
    assert {alias.name: node.module for node in imports for alias in node.names} == agentq._HOME
    assert sorted(agentq._HOME) == agentq.__all__


@pytest.mark.rest  # imports torch twice
def test_no_module_takes_the_place_of_a_public_name():
    """Importing a submodule sets it on the package, over whatever had its name."""
    modules = {module.name for module in pkgutil.iter_modules(agentq.__path__)}
    assert modules.isdisjoint(agentq.__all__)
    submodules = "agentq.searching.tree, agentq.evaluation.stats, agentq.training, agentq.recipes.rounds, agentq.api"
    used = "agentq.search, agentq.evaluate, agentq.train"
    for code in (f"import {submodules}; f = {used}", f"f = {used}; import {submodules}; f = {used}"):
        done = run(f"import agentq; {code}; print(*(type(each).__name__ for each in f))")
        assert done.stdout.split() == ["function"] * 3, done.stderr


@pytest.mark.parametrize("name", ["Learner", "train"])
def test_what_needs_torch_names_the_install_line(name):
    done = run(f"import sys; sys.modules['torch'] = None; import agentq; agentq.{name}('sft', out='nowhere')")
    assert "needs torch: pip install 'agentq-search[train]'" in done.stderr.splitlines()[-1]


def test_an_unbuilt_core_says_how_to_build_it():
    done = run("import sys; sys.modules['agentq._core'] = None; import agentq; agentq.Task; agentq.Forest")
    assert done.returncode != 0
    assert "ImportError: agentq.Forest needs the compiled core, which is not built: run `make setup`" in done.stderr


def test_imports_run_one_way():
    wrong = []
    for source in python_files():
        folder = source.relative_to(PACKAGE).parts[0]
        for module in imported_modules(source):
            top, _, rest = module.partition(".")
            target = rest.partition(".")[0]
            if top == "agentq" and target not in OPEN_TO_ALL | ALLOWED.get(folder, {target}):
                wrong.append(f"{source.relative_to(PACKAGE)} imports {module}")
    assert wrong == []


def test_the_other_python_needs_the_standard_library_only() -> None:
    for module in ELSEWHERE:
        source = (PACKAGE / Path(*module.split(".")[1:])).with_suffix(".py").read_text()
        tree = ast.parse(source, feature_version=(3, 9))
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.module is not None
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                known = name.startswith(tuple(ELSEWHERE)) or name.partition(".")[0] in sys.stdlib_module_names
                assert known or name.partition(".")[0] in ("browsergym", "gymnasium"), f"{module} imports {name}"


def test_no_file_has_over_300_lines():
    lengths = {str(f.relative_to(PACKAGE)): len(f.read_text().splitlines()) for f in python_files()}
    assert {name: length for name, length in lengths.items() if length > 300} == {}


def test_no_two_classes_share_a_name():
    found = defaultdict(list)
    for source in python_files():
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{source.relative_to(PACKAGE)}:{node.lineno}")
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def test_only_the_worker_process_imports_playwright():
    importing = [f for f in python_files() if any(m.startswith("playwright") for m in imported_modules(f))]
    assert [str(f.relative_to(PACKAGE)) for f in importing] == ["envs/browser/worker.py"]
    assert not [
        f for f in python_files() if any(m.startswith("agentq.envs.browser.worker") for m in imported_modules(f))
    ]


def test_engines_elsewhere_are_imported_where_they_are_made():
    """By `require` or in a function: importing the rest of policies needs none of these packages."""
    for package, user in (("openai", "policies/openai_client.py"), ("vllm", "policies/vllm_engine.py")):
        naming = [f for f in python_files() if f'require("{package}"' in f.read_text()]
        importing = [f for f in python_files() if any(m.startswith(f"{package}.") for m in imported_modules(f))]
        assert {str(f.relative_to(PACKAGE)) for f in [*naming, *importing]} == {user}
    code = "import sys, agentq.policies.openai_engine, agentq.policies.vllm_engine; print(*sys.modules)"
    loaded = {name.partition(".")[0] for name in run(code).stdout.split()}
    assert "agentq" in loaded and loaded.isdisjoint({"openai", "vllm", "torch", "transformers"})


def test_nothing_imports_the_public_names_from_the_package_root():
    public = {"agentq"} | {f"agentq.{name}" for name in agentq.__all__}
    for source in python_files():
        assert not imported_modules(source) & public, f"{source.relative_to(PACKAGE)} imports from the package root"


def test_the_command_is_installed():
    done = subprocess.run(
        [Path(sys.executable).with_name("agentq"), "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "demo" in done.stdout


def test_a_wrong_setting_is_told_before_anything_heavy_is_imported():
    commands = ["demo", "ladder", "train loop", "train ppo", "eval .", "eval . --search", "base --out new", "report ."]
    code = f"""
import sys
from agentq.cli import main
codes = {{main([*command.split(), "--run.sed", "3"]) for command in {commands}}}
print(codes, sorted({{"numpy", *{HEAVY}}} & set(sys.modules)))
"""
    done = run(code)
    assert done.stdout == "{2} []\n"
    assert len(done.stderr.splitlines()) == len(commands)


@pytest.mark.rest
def test_modules_and_runs_need_nothing_that_windows_lacks():
    script = Path(__file__).with_name("windows.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "an address must be HOST:PORT on Windows; got '/a/socket'" in done.stdout
