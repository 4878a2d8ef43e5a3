"""A picture of one search tree, as text or SVG: one row per action that was tried. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import escape

from agentq.envs.protocol import ROUNDING
from agentq.error_kinds import REPLAY_MISMATCH
from agentq.evaluation.outcomes import counted_end, judged, solved
from agentq.report.examples import action_text
from agentq.store.records import EXHAUSTED, TreeRecord

ROW_PX, INDENT_PX, TOP_PX, COLUMN_PX = 24, 22, 58, 56
MAX_ROWS, MAX_LETTERS = 40, 48
_CALL = re.compile(r'\{"name": "([^"\\]+)", "arguments": (\{.*\})\}\Z', re.DOTALL)
GREY = 'fill="#57606a"'


@dataclass(frozen=True, slots=True)
class Row:
    """One node. `lines`: for each ancestor, root first, whether more of its siblings follow; `note` says how it ended.

    `best`: whether it is on the path to the end that counts. `steps`: the actions that the row stands for.
    """

    node: int
    lines: tuple[bool, ...]
    action: str
    note: str
    best: bool
    steps: int


def text_picture(tree: TreeRecord, max_rows: int = MAX_ROWS) -> str:
    """The tree as indented lines with N, the visits, and Q, the mean return, of each action.

    `*`: the path that counts. `done`: nothing is left to try below, so that the search goes elsewhere, whatever Q is.
    """
    end = counted_end(tree)
    rows = _rows(tree, max_rows, end)
    labels = [_branch(row.lines) + row.action for row in rows]
    width = max(map(len, labels), default=0)
    mean = tree.mean_value
    lines = [
        f"{'*' if row.best else ' '} {label:<{width}}  N {tree.visit_count[row.node]:<3} "
        f"Q {mean[row.node]:.2f}  {row.note}".rstrip()
        for row, label in zip(rows, labels, strict=True)
    ]
    return _printable("\n".join([tree.task.instruction, _summary(tree, end), *lines, *_left_out(tree, rows)]))


def svg_picture(tree: TreeRecord, max_rows: int = MAX_ROWS) -> str:
    """The tree as an SVG document: darker circles have a larger Q, thick lines are the path that counts."""
    end = counted_end(tree)
    rows, title = _rows(tree, max_rows, end), _cut(tree.task.instruction, MAX_LETTERS * 2)
    below = "; ".join([_summary(tree, end), *_left_out(tree, rows)])
    at = {0: (_x(0), TOP_PX - 8)} | {r.node: (_x(len(r.lines)), TOP_PX + ROW_PX * i) for i, r in enumerate(rows, 1)}
    visits_x = 40 + max((_x(len(row.lines)) + _width(row.action) for row in rows), default=0)
    value_x = visits_x + COLUMN_PX
    note_x = value_x + 14
    width = 16 + max([note_x + _width(row.note) for row in rows] + [_x(0) + _width(text) for text in (title, below)])
    height = TOP_PX + ROW_PX * (len(rows) + 2)
    lines = [
        _line(at[int(tree.parent[row.node])], at[row.node], row.best) for row in sorted(rows, key=lambda r: r.best)
    ]
    parts = [
        f'<rect width="{width}" height="{height}" rx="6" fill="#ffffff" stroke="#d0d7de"/>',
        _text(_x(0) - 6, 24, title, 'font-weight="bold"'),
        *(_text(x, TOP_PX, name, f'text-anchor="end" {GREY}') for x, name in ((visits_x, "N"), (value_x, "Q"))),
        *lines,
        f'<circle cx="{at[0][0]}" cy="{at[0][1]}" r="5" {GREY}/>',
    ]
    for row in rows:
        (x, y), value = at[row.node], float(tree.mean_value[row.node])
        parts += [
            f'<circle cx="{x}" cy="{y}" r="5" fill="{_shade(value)}" stroke="#1a7f37"/>',
            _text(x + 12, y + 4, row.action, 'font-weight="bold"' if row.best else ""),
            _text(visits_x, y + 4, str(tree.visit_count[row.node]), 'text-anchor="end"'),
            _text(value_x, y + 4, f"{value:.2f}", 'text-anchor="end"'),
            _text(note_x, y + 4, row.note, GREY),
        ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="11" fill="#1f2328" role="img" '
        f'aria-label="search tree">{"".join(parts)}{_text(_x(0) - 6, height - 14, below, GREY)}</svg>\n'
    )


def _line(start: tuple[int, int], end: tuple[int, int], best: bool) -> str:
    stroke = 'stroke="#1a7f37" stroke-width="2.5"' if best else 'stroke="#afb8c1"'
    return f'<path d="M{start[0]} {start[1] + 6}V{end[1]}H{end[0] - 6}" fill="none" {stroke}/>'


def _text(x: int, y: int, text: str, more: str) -> str:
    return f'<text x="{x}" y="{y}" {more}>{escape(_printable(text))}</text>' if text else ""


def _shade(value: float) -> str:
    """White at 0, green at 1."""
    share = min(max(value, 0.0), 1.0)
    return "#" + "".join(f"{round(255 + (end - 255) * share):02x}" for end in (0x1A, 0x7F, 0x37))


def _width(text: str) -> int:
    """Largest width of a line in a monospaced font of 11 px."""
    return 7 * len(text)


def _rows(tree: TreeRecord, max_rows: int, end: int) -> list[Row]:
    """Depth first, the most visited `max_rows` of them. A rollout that no other one shares is one row: its first node.

    A child has at most its parent's visits, so that what is left out is below what is shown.
    """
    best, visits = set(tree.path(end)), tree.visit_count
    heads = [
        node
        for node in range(1, len(tree))
        if _tried(tree, node) and (node in best or (parent := int(tree.parent[node])) in best or visits[parent] > 1)
    ]
    shown = {0}
    for node in sorted(heads, key=lambda node: (node not in best, -int(visits[node]), node))[:max_rows]:
        if int(tree.parent[node]) in shown:
            shown.add(node)

    def below(node: int, lines: tuple[bool, ...]) -> Iterator[Row]:
        children = [child for child in tree.children(node).tolist() if child in shown]
        for child in children:
            own, alone = (*lines, child != children[-1]), child not in best and visits[child] <= 1
            end, more = _tail(tree, child) if alone else (child, 0)
            done = "done" if tree.flags[child] & EXHAUSTED and visits[child] else ""
            note = ", ".join(filter(None, [f"a rollout of {1 + more} steps" if more else "", _note(tree, end), done]))
            yield Row(child, own, _cut(action_text(tree, child), MAX_LETTERS), note, child in best, 1 + more)
            yield from below(child, own)

    return list(below(0, ()))


def _tail(tree: TreeRecord, node: int) -> tuple[int, int]:
    """The end of the one rollout through `node`, and the steps to there."""
    steps = 0
    while tried := [child for child in tree.children(node).tolist() if _tried(tree, child)]:
        node, steps = tried[0], steps + 1
    return node, steps


def _note(tree: TreeRecord, node: int) -> str:
    if tree.success[node]:
        return "success, says the judge" if judged(tree) else "success"
    return tree.error_kind[node] or ""


def _summary(tree: TreeRecord, end: int) -> str:
    if tree.error_kind[0]:
        return f"{tree.error_kind[0]}: {tree.info.get('error_message', '')}"
    steps = int(tree.depth[end])
    found = f"solved in {steps} step{'s' * (steps != 1)}" if solved(tree) else "not solved"
    n = int(tree.visit_count[0])
    whole = ", searched completely" if tree.flags[0] & EXHAUSTED else ""
    faults: dict[str, int] = tree.info.get("faults", {})
    hint = "; see agentq env check" * (REPLAY_MISMATCH in faults)
    broken = f", {sum(faults.values())} broken by the world ({', '.join(faults)}{hint})" if faults else ""
    tried = tree.visit_count > 0
    mean = tree.value_sum[tried] / tree.visit_count[tried]
    odd = bool(((mean < -ROUNDING) | (mean > 1 + ROUNDING)).any())
    returns = f", returns from {mean.min():g} to {mean.max():g}: search expects them in [0, 1]" if odd else ""
    return f"{n} rollout{'s' * (n != 1)}, {len(tree)} nodes, {found}{whole}{broken}{returns}"


def _left_out(tree: TreeRecord, rows: list[Row]) -> list[str]:
    tried, drawn = sum(_tried(tree, node) for node in range(1, len(tree))), sum(row.steps for row in rows)
    counts = {"not shown": tried - drawn, "proposed and not tried": len(tree) - 1 - tried}
    return [", ".join(f"{what}: {n}" for what, n in counts.items() if n)] if any(counts.values()) else []


def _tried(tree: TreeRecord, node: int) -> bool:
    return bool(tree.visit_count[node]) or tree.error_kind[node] is not None


def _branch(lines: tuple[bool, ...]) -> str:
    above = "".join("│  " if more else "   " for more in lines[:-1])
    return above + ("├─ " if lines[-1] else "└─ ")


def _cut(text: str, letters: int) -> str:
    """A text on one line, which shows the line ends of code. Of a call it shows what differs: name and arguments."""
    text = " ⏎ ".join(_CALL.sub(r"\1 \2", text).split("\n"))
    return text if len(text) <= letters else text[: letters - 1] + "…"


def _printable(text: str) -> str:
    """The text with a space for what a terminal would obey and XML forbids, such as control characters."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def _x(depth: int) -> int:
    return 20 + INDENT_PX * depth
