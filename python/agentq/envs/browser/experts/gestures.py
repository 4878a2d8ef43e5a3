"""Experts of pages that need the keyboard or a drag."""

from __future__ import annotations

import re

from agentq.envs.browser.experts.look import Look, PageExpert
from agentq.envs.browser.experts.thoughts import counted
from agentq.envs.web_env import Advice
from agentq.types import Command

_ROW = 29  # pixels from item to item
_WAYS = {"left": "BY -30 0", "right": "BY 30 0", "up": "BY 0 -30", "down": "BY 0 30"}


def _shift(look: Look) -> Advice:
    if look.did(Command.DRAG):
        return look.submit()
    return look.act(Command.DRAG, look.all("clickable")[0], "drag it", _WAYS[look.words(r"(left|right|up|down)")[0]])


def _into(look: Look) -> Advice:
    small, large = look.find("s"), look.find("L")
    return look.submit() if look.did(Command.DRAG) else look.drag(small, large)


def _reorder(look: Look) -> Advice:
    """Drag an item of a list some rows up or down, and a little further."""
    items = look.all("clickable")
    name, where = look.words(r"Drag ([\w-]+) (.+)")
    at = [look.name(e) for e in items].index(name)
    places = {"top": 0, "bottom": len(items) - 1, "up": at - 1, "down": at + 1}
    said = next((place for word, place in places.items() if word in where.split()[0:3] or f"{word}." in where), None)
    to = said if said is not None else look.nth()
    drag = look.act(Command.DRAG, items[at], "drag it", f"BY 0 {_ROW * (to - at) + (6 if to > at else -6)}")
    return look.because(f"from {at + 1} to {to + 1}", drag)


def _sort(look: Look) -> Advice:
    """Drag the first misplaced item to its place."""
    items = look.all("clickable")
    for place, item in enumerate(sorted(items, key=lambda e: int(look.name(e)))):
        if items[place] != item:
            return look.because(f"{look.name(item)} is number {place + 1}", look.drag(item, items[place]))
    return look.submit()


def _sliders(look: Look) -> Advice:
    """Sliders with numbers below them: a click focuses one, the arrow keys move it."""
    wanted = [int(n) for n in re.findall(r"-?\d+", look.said)]
    sliders = [e for e in look.all("clickable") if "slider" in look.name(e)]
    focused = [a.element for a in look.done if a.command is Command.CLICK][-1:]
    for slider, number in zip(sliders, wanted, strict=False):
        shown = int(look.line(look.lines[look.lines.index(slider) + 1]))
        if shown != number and focused != [slider]:
            return look.click(slider, "focus it")
        if shown != number:
            key = "ArrowRight" if number > shown else "ArrowLeft"
            return look.because(f"{shown} to {number}", look.press(key, min(100, abs(number - shown)), "move it"))
    if boxes := look.all("checkbox"):
        upto = boxes[: look.nth() + 1]
        advice = look.check(upto[-1:])
        return look.thinking(counted("checkbox", upto), advice)
    return look.submit()


def _scroll(look: Look) -> Advice:
    text = look.all("textbox")[0]
    if not look.did(Command.CLICK, text):
        return look.click(text, "focus it")
    if look.did(Command.PRESS):
        return look.submit()
    return look.press("Control+End" if "bottom" in look.said else "Control+Home")


def _menu(look: Look) -> Advice:
    """A menu by the keyboard: Tab focuses its first item, the right arrow opens a submenu."""
    names = look.words(r"Select (.+)")[0].split(">")
    presses = [("Tab", 1)]
    shown = [look.name(e) for e in look.all("menuitem")]
    for depth, name in enumerate(names):
        if name not in shown:
            break
        first = shown.index(names[depth - 1]) + 1 if depth else 0
        down = shown.index(name) - first
        presses += [("ArrowDown", down)] if down else []
        presses.append(("Enter" if depth == len(names) - 1 else "ArrowRight", 1))
    return look.press(*presses[len(look.done)])


def _terminal(look: Look) -> Advice:
    """Letter by letter: list the files, then remove the one with the extension."""
    screen = look.all("clickable")[0]
    ends = look.words(r"extension (\S+)")
    listed = re.search(r"user\$ ls (.*?) user\$", look.name(screen))
    names = listed[1].split() if listed else []
    name = next((each for each in names if (each.endswith(ends[0]) if ends else "." not in each)), "")
    keys = ["l", "s", "Enter", *"rm", "Space", *name, "Enter"]
    return look.click(screen, "focus it") if not look.done else look.press(keys[len(look.done) - 1])


def _corner(look: Look) -> Advice:
    """The right and lower edge of a field can be dragged."""
    if look.did(Command.DRAG):
        return look.submit()
    size, way = look.words(r"the (width|height) is (smaller|larger)")
    edge = next(
        e for e in look.all() if look.name(e).split()[-1:] == [f"ui-resizable-{'e' if size == 'width' else 's'}"]
    )
    pixels = 20 if way == "larger" else -20
    return look.drag_by(edge, *((pixels, 0) if size == "width" else (0, pixels)))


def _widget(look: Look) -> Advice:
    """A text area takes Enter as a character; a text field does not."""
    (kind,) = look.words(r'"(\w+)" widget')
    if kind not in ("text", "textarea"):
        return look.click(look.all(kind)[0])
    typed = [a.element or 0 for a in look.done if a.command is Command.TYPE]
    if look.done and look.done[-1].command is Command.TYPE:
        return look.press("Enter", why="see what it does")
    if typed and (look.value(typed[-1]) != "x") == (kind == "textarea"):
        return look.click(typed[-1])
    left = [e for e in look.all("textbox") if e not in typed]
    return look.act(Command.TYPE, left[0], "is it one line", "x") if len(left) > 1 else look.click(left[0])


EXPERTS: dict[str, PageExpert] = {
    **dict.fromkeys(("drag-circle", "drag-single-shape"), _shift),
    **dict.fromkeys(("use-slider", "use-slider-2", "form-sequence"), _sliders),
    "drag-box": _into,
    "drag-items": _reorder,
    "drag-sort-numbers": _sort,
    "click-widget": _widget,
    "resize-textarea": _corner,
    "scroll-text-2": _scroll,
    "click-menu": _menu,
    "terminal": _terminal,
}
