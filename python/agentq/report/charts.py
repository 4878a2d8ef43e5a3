"""Charts as inline SVG, coloured by the page's CSS classes. Pure functions: numbers in, markup out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup, escape

from agentq.evaluation.stats import RungResult

WIDTH_PX = 800
LABEL_PX, VALUE_PX, ROW_PX = 150, 170, 30
PLOT_WIDTH_PX, PLOT_HEIGHT_PX, MARGIN_PX = 270, 140, 48


def success_bars(rungs: Sequence[RungResult]) -> Markup:
    """One horizontal bar per rung, 0 to 100 %, with its 95 % interval as a whisker and its figures at the right."""
    height = ROW_PX * len(rungs) + 28
    scale = WIDTH_PX - LABEL_PX - VALUE_PX

    def x(rate: float) -> float:
        return round(LABEL_PX + rate * scale, 1)

    parts = [
        f'<line class="grid" x1="{x(t)}" y1="0" x2="{x(t)}" y2="{height - 22}"/>'
        f'<text class="tick" x="{x(t)}" y="{height - 6}" text-anchor="middle">{round(100 * t)} %</text>'
        for t in (0, 0.25, 0.5, 0.75, 1)
    ]
    for row, rung in enumerate(rungs):
        top = row * ROW_PX + 4
        middle = top + 10
        figures = f"{100 * rung.rate:.1f} %  [{100 * rung.low:.1f}, {100 * rung.high:.1f}]"
        ends = "".join(
            f'<line class="whisker" x1="{x(end)}" y1="{middle - 5}" x2="{x(end)}" y2="{middle + 5}"/>'
            for end in (rung.low, rung.high)
        )
        parts.append(
            f'<text x="{LABEL_PX - 8}" y="{middle + 4}" text-anchor="end">{_label(rung.name)}</text>'
            f'<rect class="bar" x="{LABEL_PX}" y="{top}" width="{round(rung.rate * scale, 1)}" height="20" rx="2"/>'
            f'<line class="whisker" x1="{x(rung.low)}" y1="{middle}" x2="{x(rung.high)}" y2="{middle}"/>{ends}'
            f'<text class="tick" x="{x(1) + 10}" y="{middle + 4}">{figures}</text>'
        )
    return _svg(WIDTH_PX, height, "success rate of each rung with its 95 % interval", parts)


def line_plot(title: str, points: Sequence[tuple[float, float]]) -> Markup:
    """(step, value) points, finite and ordered by step, as one line with labelled ends of both axes."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    left, right, low, high = *_span(xs), *_span(ys)
    width, height = PLOT_WIDTH_PX - MARGIN_PX - 12, PLOT_HEIGHT_PX - 52

    def place(x: float, y: float) -> str:
        return f"{MARGIN_PX + (x - left) / (right - left) * width:.1f},{28 + (high - y) / (high - low) * height:.1f}"

    bottom = 28 + height
    parts = [
        f'<text x="{MARGIN_PX}" y="16">{escape(title)}</text>',
        f'<line class="grid" x1="{MARGIN_PX}" y1="28" x2="{MARGIN_PX + width}" y2="28"/>',
        f'<line class="grid" x1="{MARGIN_PX}" y1="{bottom}" x2="{MARGIN_PX + width}" y2="{bottom}"/>',
        f'<text class="tick" x="{MARGIN_PX - 6}" y="32" text-anchor="end">{_short(high)}</text>',
        f'<text class="tick" x="{MARGIN_PX - 6}" y="{bottom + 4}" text-anchor="end">{_short(low)}</text>',
        f'<text class="tick" x="{MARGIN_PX}" y="{bottom + 16}">{_short(xs[0])}</text>',
        f'<text class="tick" x="{MARGIN_PX + width}" y="{bottom + 16}" text-anchor="end">step {_short(xs[-1])}</text>',
    ]
    if len(points) == 1:
        cx, cy = place(*points[0]).split(",")
        parts.append(f'<circle class="dot" cx="{cx}" cy="{cy}" r="3"/>')
    else:
        parts.append(f'<polyline class="curve" points="{" ".join(place(x, y) for x, y in points)}"/>')
    return _svg(PLOT_WIDTH_PX, PLOT_HEIGHT_PX, f"{title} over steps", parts)


def histogram(title: str, values: Sequence[int], bins: int = 20) -> Markup:
    """Counts of `values`, at least one and none negative, in bins of equal width from the least to the greatest."""
    low, high = min(values), max(values)
    step = -(-(high - low + 1) // bins)
    counts = [0] * (-(-(high - low + 1) // step))
    for value in values:
        counts[(value - low) // step] += 1
    width, height = PLOT_WIDTH_PX - 16, PLOT_HEIGHT_PX - 64
    bar, bottom = width / len(counts), 40 + height
    half, most = (sorted(values)[round(share * (len(values) - 1))] for share in (0.5, 0.95))
    parts = [
        f'<text x="8" y="14">{escape(title)}</text>',
        f'<text class="tick" x="8" y="30">n {len(values):,}, half up to {half:,}, 95 % up to {most:,}</text>',
        f'<line class="grid" x1="8" y1="{bottom}" x2="{8 + width}" y2="{bottom}"/>',
        f'<text class="tick" x="8" y="{bottom + 16}">{low:,}</text>',
        f'<text class="tick" x="{8 + width}" y="{bottom + 16}" text-anchor="end">{high:,}</text>',
    ]
    for i, number in enumerate(counts):
        tall = height * number / max(counts)
        parts.append(
            f'<rect class="bar" x="{8 + i * bar:.1f}" y="{bottom - tall:.1f}" width="{bar - 1:.1f}"'
            f' height="{tall:.1f}"><title>{low + i * step:,} to {low + (i + 1) * step - 1:,}: {number:,}</title></rect>'
        )
    return _svg(PLOT_WIDTH_PX, PLOT_HEIGHT_PX, f"how many prompts of {title} have how many tokens", parts)


def finite_points(rows: Sequence[dict[str, object]], name: str, at_most: int = 400) -> list[tuple[float, float]]:
    """(step, value) of the rows that have a finite `name`; long series are averaged over equal blocks of rows."""
    points = []
    for row in rows:
        step, value = row.get("step"), row.get(name)
        if isinstance(step, int | float) and isinstance(value, int | float) and math.isfinite(value):
            points.append((float(step), float(value)))
    points.sort()
    block = -(-len(points) // at_most) or 1
    blocks = [points[i : i + block] for i in range(0, len(points), block)]
    return [(sum(x for x, _ in b) / len(b), sum(y for _, y in b) / len(b)) for b in blocks]


def _label(name: str, most: int = 20) -> Markup:
    """A name that fits beside a bar: of a long one both ends, and a tooltip with the whole."""
    if len(name) <= most:
        return escape(name)
    half = most // 2
    return Markup("<title>{}</title>{}…{}").format(name, name[:half], name[-half + 1 :])


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _short(value: float) -> str:
    """At most three decimals, to fit beside an axis: 0.00603 is 0.006, 0.00000021 is 2e-7."""
    if 0 < abs(value) < 0.0005:
        return f"{value:.0e}".replace("e-0", "e-")
    return f"{value:.3f}".rstrip("0").rstrip(".") if abs(value) < 100 else f"{value:.0f}"


def _svg(width: int, height: int, label: str, parts: Sequence[str]) -> Markup:
    opening = f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"'
    return Markup(f'{opening} aria-label="{escape(label)}">{"".join(parts)}</svg>')
