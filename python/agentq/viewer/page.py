"""`write_view`: one self-contained HTML file that shows every tree and episode of one or several runs.

The data are compressed blocks in the file, which the page's script opens when they are asked for. The page makes no
request: its content security policy forbids all, and allows only the one script and the one style sheet by their
hashes.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from agentq.evaluation.outcomes import counted_end
from agentq.status import StageDisplay
from agentq.store.durable import check_page, write_page
from agentq.store.stages import left_out
from agentq.viewer.data import Shown, picture_name, row, token_data, tree_data, weigh
from agentq.viewer.items import ItemPlace, Items, squeeze

PICTURES_MB = 20  # of screenshots in one file; --live shows all
PAGE = Path(__file__).parent / "page"
SCRIPTS = (
    "d3-hierarchy.min.js",
    "base.js",
    "model.js",
    "drawing.js",
    "outline.js",
    "details.js",
    "pane.js",
    "tasks.js",
    "app.js",
)


def write_view(run_dirs: Sequence[Path | str], out: Path | None = None, *, status: StageDisplay | None = None) -> Path:
    """Write the page of these runs, even while they go on. Returns its path.

    A damaged tree, episode or note is left out, which the page and `status` say.

    Args:
        run_dirs: at least one run directory; the page compares trees of several.
        out: the page's file; None: `view.html` in the first run's directory.
        status: shows how many trees and episodes are read; None: nothing is shown.

    Raises:
        StoreError: if a run cannot be read, or the page cannot be written.
    """
    own, out = out is None, out or Path(run_dirs[0]) / "view.html"
    remedy = ": choose another by agentq view RUN --out FILE"
    items = Items([Path(path) for path in run_dirs])
    try:
        check_page(out, remedy, follow=not own)
        blocks, rows, pictures, lost = [], [], dict[str, bytes](), list[str]()
        places = list(items.places())
        pairs_of = cache(lambda run, stage: items.pairs(run, stage, lost))
        show = status.stage("view", len(places), "items") if status is not None else None
        for number, place in enumerate(places):
            if show is not None:
                show(number, "")
            shown = items.whole(place, lost)
            if shown is None:
                continue
            pairs = pairs_of(place.run, place.stage)
            weighed = weigh(shown, pairs)
            rows.append(about(number, place, row(shown, weighed)))
            blocks.append(_block(f"tree{number}", squeeze(tree_data(shown, pairs, weighed))))
            blocks.append(_block(f"tokens{number}", squeeze(token_data(shown, items.words(place.run)))))
            _add_pictures(shown, pictures)
        if show is not None:
            show(len(places), "")
        blocks += [_block(name, data) for name, data in pictures.items()]
        about_all = {"live": False, "runs": items.runs(), "items": rows, "lost": left_out(lost)}
        blocks.append(_block("index", squeeze(about_all)))
        page = "".join(_html(", ".join(path.name for path in items.paths), blocks, connect="'none'"))
    finally:
        items.close()
    if lost and status is not None:
        status.say(left_out(lost))
    write_page(out, page.encode(errors="replace"), remedy, follow=not own)  # a directory's name may be no text
    return out


def _add_pictures(shown: Shown, pictures: dict[str, bytes]) -> None:
    """Add the screenshots of an item, those of its best path first, while there is room."""
    tree = shown.tree
    best = tree.path(counted_end(tree))
    room = PICTURES_MB * 1_000_000 - sum(map(len, pictures.values()))
    for node in (*best, *range(len(tree))):
        page = tree.observation[node]
        name = picture_name(page)
        if page is not None and page.picture is not None and name not in pictures and len(page.picture.webp) <= room:
            pictures[name] = page.picture.webp
            room -= len(page.picture.webp)


def about(number: int, place: ItemPlace, found: dict[str, Any]) -> dict[str, Any]:
    """The row of an item in the page's index."""
    return {"id": number, "run": place.run, "stage": place.stage, "kind": place.kind, "key": place.key, **found}


def live_page(title: str) -> tuple[bytes, str]:
    """The same page without data, which it asks from where it came; and its content security policy."""
    parts = list(_html(title, [], connect="'self'"))
    return "".join(parts).encode(), policy(connect="'self'")


def policy(connect: str) -> str:
    """The content security policy: no request but by `connect`, and no script or style but the page's own."""
    script, style = (
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in (_script(), _style())
    )
    return (
        f"default-src 'none'; script-src {script}; style-src {style}; img-src blob:; connect-src {connect}; "
        "base-uri 'none'; form-action 'none'"
    )


def _html(title: str, blocks: Sequence[str], connect: str) -> Iterator[str]:
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy(connect), quote=True)}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f"<title>{html.escape(title)} - agentq view</title>\n<style>{_style()}</style>\n</head>\n<body>\n"
    yield (PAGE / "body.html").read_text(encoding="utf-8")
    yield from blocks
    yield f"<script>{_script()}</script>\n</body>\n</html>\n"


def _block(name: str, data: bytes) -> str:
    """Bytes that the browser keeps and does not run."""
    return f'<script type="application/octet-stream" id="{name}">{base64.b64encode(data).decode()}</script>\n'


def _script() -> str:
    return "\n".join((PAGE / name).read_text(encoding="utf-8") for name in SCRIPTS)


def _style() -> str:
    return (PAGE / "style.css").read_text(encoding="utf-8")
