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
