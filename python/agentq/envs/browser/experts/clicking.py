"""Experts of pages on which the instruction or the page says what to click."""

from __future__ import annotations

import re

from agentq.envs.browser.experts.look import Look, PageExpert
from agentq.envs.browser.experts.thoughts import best, counted, pressed, walk
from agentq.envs.web_env import Advice
from agentq.types import Command


def _quoted(look: Look) -> Advice:
    return look.click(look.find({"x": "Close"}.get(look.quoted[0], look.quoted[0])))


def _button(look: Look) -> Advice:
    return look.click(look.find(look.words(r"button (\w+)\.")[0]))


def _sequence(look: Look) -> Advice:
    names = re.findall(r"button (\w+)", look.said)
    return look.click(look.find(names[len(look.done)]))


def _tab(look: Look) -> Advice:
    return look.click(look.find(look.words(r"Click on (Tab #\d)")[0], "tab"))


def _color(look: Look) -> Advice:
    return look.click(look.find(f"{look.words('the (.+) colored')[0]} color"))


def _textbox(look: Look) -> Advice:
    upto = look.all("textbox")[: look.nth() + 1 if "input" in look.said else 1]
    return look.thinking(counted("textbox", upto), look.click(upto[-1], "focus it"))


def _find_in_tabs(look: Look) -> Advice:
    """Sections and tabs: open the next one until the link is shown."""
    link = next((e for e in look.all(name=look.quoted[0]) if look.role(e) != "tab"), 0)
    closed = [e for e in look.all("tab") if not look.value(e) and not look.did(Command.CLICK, e)]
    if link:
        return look.click(link)
    return look.because(f"{look.quoted[0]} is not here", look.click(closed[0] if closed else 0, "open it"))


def _expand(look: Look) -> Advice:
    section = look.all("tab")[0]
    return look.submit() if look.value(section) else look.click(section, "open it")


def _tree(look: Look) -> Advice:
    named, closed = look.find(look.quoted[0]), [e for e in look.all() if "expandable" in look.name(e)]
    if named:
        return look.click(named)
    return look.because(f"{look.quoted[0]} is not here", look.click(closed[0] if closed else 0, "open it"))


def _shape(look: Look) -> Advice:
    drawn = look.name(look.all("clickable")[0]).split(" , ")[-1].split()[0]
    kinds = {"rect": "Rectangle", "circle": "Circle", "polygon": "Triangle"}
    kind = kinds.get(drawn, "Number" if drawn.isdigit() else "Letter")
    return look.because(f"{drawn} is a {kind}", look.click(look.find(kind, "button")))


def _greatest(look: Look) -> Advice:
    cards = look.all("clickable")
    if look.did(Command.CLICK):
        return look.submit()
    thought, chosen = best([(e, look.name(e)) for e in cards], [int(look.name(e)) for e in cards], max)
    return look.thinking(thought, look.click(chosen))


def _ticket(look: Look) -> Advice:
    """Buttons `Book for $1844`, each below `Duration:` and its hours and minutes."""
    offers = look.all("button")
    durations = [line.removeprefix("text ") for line in map(str, look.lines) if re.match(r"text \d+h", line)]
    if "duration" in look.said or "shortest" in look.said or "longest" in look.said:
        keys = [int(h) * 60 + int(m) for h, m in (re.findall(r"\d+", text) for text in durations)]
    else:
        keys = [int(look.name(e).partition("$")[2]) for e in offers]
    better = max if re.search("most expensive|longest", look.said) else min
    thought, chosen = best([(e, str(key)) for e, key in zip(offers, keys, strict=True)], keys, better)
    return look.thinking(thought, look.click(chosen))


def _shades(look: Look) -> Advice:
    wanted = ("red", "green", "blue").index(look.words(r"shades of (\w+)")[0])
    boxes = {e: [int(n) for n in re.findall(r"\d+", look.name(e))] for e in look.all("clickable")}
    chosen = [e for e, rgb in boxes.items() if max(rgb) == rgb[wanted] and "selected" not in look.name(e)]
    told = " ".join(map(str, boxes[chosen[0]])) if chosen else ""
    if not chosen:
        return look.submit()
    return look.because(f"{told} is {look.words('shades of (.+?)[ .]')[0]}", look.click(chosen[0]))


def _parity(look: Look) -> Advice:
    """Rows of `Odd`, the number, `Even`."""
    buttons, parity = [], {}
    for before, line, after in zip(look.lines, look.lines[1:], look.lines[2:], strict=False):
        if isinstance(before, int) and isinstance(line, str) and isinstance(after, int):
            odd = int(look.line(line)) % 2
            buttons.append(before if odd else after)
            parity[buttons[-1]] = look.line(line)
    left = next((e for e in buttons if not look.did(Command.CLICK, e)), 0)
    return look.because(parity.get(left, ""), look.clicks(buttons))


def _posts(look: Look) -> Advice:
    """The named button below every post of a user, or below a given number of them."""
    name, many, user = look.words(r'"(\w+)" button on (\w+) posts? by (@\w+)')
    lines, found = look.lines, []
    for i, line in enumerate(lines):
        if look.line(line).endswith(f" {user}"):
            found += [e for e in lines[i:] if isinstance(e, int) and look.name(e).split()[0] == name.lower()][:1]
    done = [e for e in found if look.did(Command.CLICK, e)]
    left = [e for e in found if e not in done]
    if left and (many == "all" or len(look.done) - look.count(Command.SCROLL) < int(many)):
        due = f"{name.lower()} [{left[0]}]"
        return look.thinking(f"{user} , {pressed(name.lower(), done, due)}", look.click(left[0]))
    advice = look.submit()
    return look.thinking(pressed(name.lower(), done, advice.thought), advice, submitting=True)


def _generate(look: Look) -> Advice:
    shown = look.line(look.lines[0])
    bounds = look.words(r"(less|greater) than (\d+)")
    if shown != "-":
        number = int(shown)
        right = number % 2 == ("odd" in look.said)
        if bounds:
            right = number < int(bounds[1]) if bounds[0] == "less" else number > int(bounds[1])
        if right:
            advice = look.submit()
            return look.thinking(f"{shown} yes , {advice.thought}", advice, submitting=True)
    return look.because(f"{shown} no", look.click(look.find("Generate"), "generate"))


def _contact(look: Look) -> Advice:
    """Turn pages until the heading has the name; then take the text below `Phone:`, `Email:` or `Address:`."""
    name, field = look.words(r"Find (.+) in the contact book and click on their (phone|email|address)")
    if look.line(look.lines[0]) != name:
        return look.because(f"{look.line(look.lines[0])} , not {name}", look.click(look.find(">"), "next page"))
    label = f"{field.title()}:"
    wanted = look.after(label)
    return look.thinking(f"{name} , {label} [{wanted}]", look.click(wanted))


def _order(look: Look) -> Advice:
    """Two dishes by name, or the first of a kind, which is below its name, a given number of times."""
    clicked = look.count(Command.CLICK)
    if names := look.words(r"each item: (.+), (.+)"):
        found = [look.after(name, "+") for name in names]
        left = [e for e in found if e and not look.did(Command.CLICK, e)]
        if clicked == 2:
            return look.submit("Order!")
        first = min(left, default=0)
        if not first:
            return look.click(first)
        name = names[found.index(first)]
        return look.thinking(walk(name, look.group(name), first), look.click(first))
    number, kind = look.words(r"Order (\d+) items? that (?:is|are) (.+)")
    lines = look.lines
    fits = [i for i, line in enumerate(lines) if isinstance(line, str) and kind in line.split()]
    plus = [e for i in fits for e in lines[i : i + 4] if isinstance(e, int) and look.name(e) == "+"]
    if clicked == int(number):
        return look.submit("Order!")
    if not plus:
        return look.click(0)
    dish = look.line(lines[fits[0] - 1])
    return look.thinking(walk(f"{kind} , {dish}", look.group(dish), plus[0]), look.click(plus[0]))


def _ascending(look: Look) -> Advice:
    """The numbers stand in their order and are then covered, but for those clicked."""
    return look.click(look.all("clickable")[0])


def _delayed(look: Look) -> Advice:
    (seconds,) = look.words(r"wait (\d+) seconds")
    if len(look.done) == 1:
        return look.wait(int(seconds))
    return look.click(look.find("TWO" if look.done else "ONE"))


def _menu_of(look: Look) -> Advice:
    """A button below a user's post, or an item of the menu behind the last, which changes under the mouse."""
    user, name = look.words(r'user (@\w+), click on the "(.+)" button')
    if name.lower() in ("reply", "retweet", "like"):
        wanted = look.below(user, name.lower())
        return look.thinking(walk(user, look.group(user), wanted), look.click(wanted))
    if look.did(Command.CLICK):
        return look.click(next((e for e in look.all() if look.name(e).startswith(name)), 0))
    more = look.below(user, "more")
    there = look.did(Command.HOVER)
    advice = look.click(more, "open it") if there else look.act(Command.HOVER, more, "go there")
    return look.thinking(walk(user, look.group(user), more), advice)


EXPERTS: dict[str, PageExpert] = {
    **dict.fromkeys(("click-button", "click-dialog-2", "click-link", "unicode-test"), _quoted),
    **dict.fromkeys(("click-test-2", "click-test-transfer"), _button),
    **dict.fromkeys(("click-tab-2", "click-tab-2-easy", "click-tab-2-medium", "click-tab-2-hard"), _find_in_tabs),
    **dict.fromkeys(("click-collapsible-2", "click-collapsible-2-nodelay"), _find_in_tabs),
    **dict.fromkeys(("click-collapsible", "click-collapsible-nodelay"), _expand),
    **dict.fromkeys(("focus-text", "focus-text-2"), _textbox),
    **dict.fromkeys(("social-media-all", "social-media-some"), _posts),
    "click-test": lambda look: look.click(look.all("button")[0]),
    "click-dialog": lambda look: look.click(look.find("Close")),
    "click-button-sequence": _sequence,
    "click-tab": _tab,
    "click-color": _color,
    "click-shades": _shades,
    "navigate-tree": _tree,
    "identify-shape": _shape,
    "find-greatest": _greatest,
    "buy-ticket": _ticket,
    "odd-or-even": _parity,
    "generate-number": _generate,
    "phone-book": _contact,
    "order-food": _order,
    "ascending-numbers": _ascending,
    "button-delay": _delayed,
    "social-media": _menu_of,
}
