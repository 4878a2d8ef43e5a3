"""The README keeps its promises: its program prints what it says, its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])


def test_readme_program_prints_what_it_says() -> None:
    readme = (ROOT / "README.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    (printed,) = re.findall(r"^```text\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == printed, done.stderr


def test_links_between_documents_lead_somewhere() -> None:
    links = [
        (document, link)
        for document in DOCUMENTS
        for link in re.findall(r"\]\(([^)#]+)", document.read_text())
        if "://" not in link
    ]
    assert len(links) >= 5
    assert [(str(d.relative_to(ROOT)), link) for d, link in links if not (d.parent / link).exists()] == []


def test_readme_program_is_the_first_example() -> None:
    readme = (ROOT / "README.md").read_text()
    assert f"```python\n{(ROOT / 'examples' / 'search_own_env.py').read_text()}```" in readme


def test_ten_common_changes_name_files_that_are_there_two_at_most() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text[text.index("## Ten common changes") : text.index("## The map")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("|")]
    tasks = {task: re.findall(r"`([^`]+)`", files) for task, files, _ in rows[2:]}
    assert len(tasks) == 10 and all(1 <= len(files) <= 2 for files in tasks.values())
    for file in (file for files in tasks.values() for file in files):
        assert (ROOT / file).is_file() or (ROOT / "python" / "agentq" / file).is_file(), file


def test_the_map_names_every_part_of_the_package() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"`([\w./]+)`", text[text.index("## The map") : text.index("## Rules")]))
    package = ROOT / "python" / "agentq"
    folders = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    modules = {path.name for path in package.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert named >= folders | modules
