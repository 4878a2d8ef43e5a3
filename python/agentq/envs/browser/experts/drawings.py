"""Experts of pages with a drawing, whose shapes are read with colour, size and place: `circle red 10x10 at 48,85`."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from agentq.envs.browser.experts.look import Look, PageExpert
from agentq.envs.web_env import Advice

_SHAPE = re.compile(r"(\S+)(?: ([a-z]+))? (\d+)x(\d+) at (-?\d+),(-?\d+)")
_KINDS = {"rect": "rectangle", "polygon": "triangle"}
_LARGE = 15  # pixels: small ones have half of what large ones have
_MARGIN = 5  # from the edge of a drawing


class Shape(NamedTuple):
    kind: str
    color: str
    width: int
    height: int
    x: int
    y: int

    def fits(self, wanted: str) -> bool:
        """Whether this is what a description such as `large red digit` means."""
        *more, kind = wanted.split()
        character = len(self.kind) == 1
        drawn = "digit" if self.kind.isdigit() else "letter" if character else "shape"
        if kind not in ("item", drawn, _KINDS.get(self.kind, self.kind)):
            return False
        return all(word in (self.color, "large" if self.height >= _LARGE else "small") for word in more)

    def inside(self, box: Shape) -> bool:
        return abs(self.x - box.x) < box.width / 2 and abs(self.y - box.y) < box.height / 2


def _shapes(text: str) -> list[Shape]:
    return [Shape(kind, color, *map(int, numbers)) for kind, color, *numbers in _SHAPE.findall(text)]


def _drawn(look: Look) -> dict[int, Shape]:
    """The shapes that can be pressed, by number."""
    return {e: shapes[0] for e in look.all("clickable") if (shapes := _shapes(look.name(e)))}


def _shape(look: Look) -> Advice:
    wanted = look.words(r"Click on a (.+)")[0]
    return look.click(next((e for e, shape in _drawn(look).items() if shape.fits(wanted)), 0))


def _count(look: Look) -> Advice:
    wanted = look.words(r"How many (.+)s are there")[0]
    shapes = _shapes(look.name(look.all("clickable")[0]))[1:]  # the first is the canvas
    found = [f"{shape.kind} {shape.color}" for shape in shapes if shape.fits(wanted)]
    return look.because(f"{' '.join(found) or 'none'} : {len(found)}", look.click(look.find(str(len(found)), "button")))


def _into_boxes(look: Look) -> Advice:
    """What is named goes into the box; of two boxes, into the left one, and all else into the right one."""
    wanted = look.words(r"Drag all (\w+)")[0].removesuffix("s")
    texts = " ".join(line for line in look.lines if isinstance(line, str))
    boxes = sorted((shape for shape in _shapes(texts) if shape.color == "none"), key=lambda box: box.x)
    for element, shape in _drawn(look).items():
        named = wanted == shape.color or shape.fits(wanted)
        box = boxes[0] if named else boxes[-1]
        if (named or len(boxes) > 1) and not shape.inside(box):
            told = f"{box.x} - {shape.x} , {box.y} - {shape.y}"
            return look.because(told, look.drag_by(element, box.x - shape.x, box.y - shape.y))
    return look.submit()


def _coordinate(look: Look) -> Advice:
    """A grid of points, whose middle one lies where the axes cross."""
    x, y = map(int, look.words(r"\((-?\d+),(-?\d+)\)"))
    points = _drawn(look)
    columns, rows = sorted({shape.x for shape in points.values()}), sorted({shape.y for shape in points.values()})
    at = columns[len(columns) // 2 + x], rows[len(rows) // 2 - y]
    told = f"{at[0]} , {at[1]}"
    return look.because(told, look.click(next(e for e, shape in points.items() if (shape.x, shape.y) == at)))


def _point(look: Look) -> Advice:
    """Mark a point that follows from those that are drawn, then submit."""
    if look.done:
        return look.submit()
    canvas, *shapes = _shapes(look.name(look.all("clickable")[0]))
    black = [(shape.x, shape.y) for shape in shapes if (shape.kind, shape.color) == ("circle", "black")]
    blue = [(shape.x, shape.y) for shape in shapes if (shape.kind, shape.color) == ("circle", "blue")]
    if len(black) == 2:
        (ax, ay), (bx, by) = black
        share = 0.5
        if blue:  # the bisector parts the opposite side as the two sides are to each other
            share = math.dist(blue[0], black[0]) / (math.dist(blue[0], black[0]) + math.dist(blue[0], black[1]))
        return look.click_at(ax + (bx - ax) * share, ay + (by - ay) * share)
    if not black:
        return look.click_at(shapes[0].x, shapes[0].y)
    (ax, ay), (vx, vy) = black[0], blue[0]
    ends = [(vx + way * (ay - vy), vy - way * (ax - vx)) for way in (1, -1, 0.5, -0.5, 0.25, -0.25)]
    reach_x, reach_y = canvas.width / 2 - _MARGIN, canvas.height / 2 - _MARGIN
    x, y = next((x, y) for x, y in ends if abs(x - canvas.x) < reach_x and abs(y - canvas.y) < reach_y)
    return look.click_at(x, y)


EXPERTS: dict[str, PageExpert] = {
    **dict.fromkeys(("drag-shapes", "drag-shapes-2"), _into_boxes),
    **dict.fromkeys(("bisect-angle", "circle-center", "find-midpoint", "right-angle"), _point),
    "click-shape": _shape,
    "count-shape": _count,
    "grid-coordinate": _coordinate,
}
