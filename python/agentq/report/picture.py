"""A picture of one search tree, as text or SVG: one row per action that was tried. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import escape

from agentq.report.examples import action_text, best_end
from agentq.store.records import TreeRecord

ROW_PX, INDENT_PX, TOP_PX, COLUMN_PX, LETTER_PX = 24, 22, 58, 56, 6.7
MAX_ROWS, MAX_LETTERS = 40, 48


@dataclass(frozen=True, slots=True)
class Row:
    """One node. `lines`: for each ancestor, root first, whether more of its siblings follow; `note` says how it ended.

    `best`: whether it is on the path to the tree's best end. `steps`: the actions that the row stands for.
    """

    node: int
    lines: tuple[bool, ...]
    action: str
    note: str
    best: bool
    steps: int


def text_picture(tree: TreeRecord, max_rows: int = MAX_ROWS) -> str:
    """The tree as indented lines with N, the visits, and Q, the mean return, of each action; `*`: the best path."""
    rows = _rows(tree, max_rows)
    labels = [_branch(row.lines) + row.action for row in rows]
    width = max(map(len, labels), default=0)
    mean = tree.mean_value
    lines = [
        f"{'*' if row.best else ' '} {label:<{width}}  N {tree.visit_count[row.node]:<3} "
        f"Q {mean[row.node]:.2f}  {row.note}".rstrip()
        for row, label in zip(rows, labels, strict=True)
    ]
    return "\n".join([tree.task.instruction, _summary(tree), *lines, *_left_out(tree, rows)])


def svg_picture(tree: TreeRecord, max_rows: int = MAX_ROWS) -> str:
    """The tree as an SVG document: darker circles have a larger Q, thick lines are the best path."""
    rows, mean, x = _rows(tree, max_rows), tree.mean_value, _x
    place = {0: (x(0), TOP_PX - 8)} | {r.node: (x(len(r.lines)), TOP_PX + ROW_PX * (i + 1)) for i, r in enumerate(rows)}
    right = max((x(len(r.lines)) + LETTER_PX * len(r.action) for r in rows), default=0) + 40
    width, height = right + 3 * COLUMN_PX + 20, TOP_PX + ROW_PX * (len(rows) + 2)
    heading = [(right, "N"), (right + COLUMN_PX, "Q")]
    parts = [
        f'<rect width="{width:.0f}" height="{height}" rx="6" fill="#ffffff" stroke="#d0d7de"/>',
        f'<text x="{x(0) - 6}" y="24" font-weight="bold">{escape(_cut(tree.task.instruction, 96))}</text>',
        *(f'<text x="{at:.0f}" y="{TOP_PX}" text-anchor="end" fill="#57606a">{name}</text>' for at, name in heading),
        f'<circle cx="{place[0][0]}" cy="{place[0][1]}" r="5" fill="#57606a"/>',
    ]
    for row in rows:
        (from_x, from_y), (at_x, at_y) = place[int(tree.parent[row.node])], place[row.node]
        stroke = 'stroke="#1a7f37" stroke-width="2.5"' if row.best else 'stroke="#afb8c1"'
        parts.append(f'<path d="M{from_x} {from_y + 6}V{at_y}H{at_x - 6}" fill="none" {stroke}/>')
    for row in rows:
        at_x, at_y = place[row.node]
        q = min(max(float(mean[row.node]), 0.0), 1.0)
        weight = ' font-weight="bold"' if row.best else ""
        figures = f"{tree.visit_count[row.node]}", f"{mean[row.node]:.2f}"
        parts += [
            f'<circle cx="{at_x}" cy="{at_y}" r="5" fill="#1a7f37" fill-opacity="{q:.2f}" stroke="#1a7f37"/>',
            f'<text x="{at_x + 12}" y="{at_y + 4}"{weight}>{escape(row.action)}</text>',
            *(
                f'<text x="{at:.0f}" y="{at_y + 4}" text-anchor="end">{figure}</text>'
                for (at, _), figure in zip(heading, figures, strict=True)
            ),
            f'<text x="{right + COLUMN_PX + 14:.0f}" y="{at_y + 4}" fill="#57606a">{escape(row.note)}</text>',
        ]
    below = "; ".join([_summary(tree), *_left_out(tree, rows)])
    parts.append(f'<text x="{x(0) - 6}" y="{height - 14}" fill="#57606a">{escape(below)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
        f'height="{height}" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="11" fill="#1f2328" '
        f'role="img" aria-label="search tree">{"".join(parts)}</svg>\n'
    )


def _rows(tree: TreeRecord, max_rows: int) -> list[Row]:
    """Depth first, the most visited `max_rows` of them. A rollout that no other one shares is one row: its first node.

    A child has at most its parent's visits, so that what is left out is below what is shown.
    """
    best, visits = set(tree.path(best_end(tree))), tree.visit_count
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
            note = ", ".join(filter(None, [f"{more} more steps" if more else "", _note(tree, end)]))
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
        return "success"
    return tree.error_kind[node] or ""


def _summary(tree: TreeRecord) -> str:
    end = best_end(tree)
    found = f"solved in {tree.depth[end]} steps" if tree.success[end] else "not solved"
    return f"{tree.visit_count[0]} rollouts, {len(tree)} nodes, {found}"


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
    return text if len(text) <= letters else text[: letters - 1] + "…"


def _x(depth: int) -> int:
    return 20 + INDENT_PX * depth
