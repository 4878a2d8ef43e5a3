"""Pages without an expert: random but sensible actions."""

from __future__ import annotations

import json
import random
import re
from typing import Any

from agentq.agent.calls import call
from agentq.envs.protocol import SiteEnv
from agentq.types import Command, EnvAction, Language, Observation, Task, Verb

_ELEMENT = re.compile(r"(\w+)\b.*\[(\d+)\]")
_OFFERED = re.compile(r"\[[^\[\]\n]{1,30}\]")  # such as `[Up]` or `[2 1 4 5]`, as many games write what may be said
_ENDS = re.compile(r"[\n.,;:|()<>\[\]\"'`]| or ")  # of a phrase, as in `a move must be one of left, right`
_PHRASE = 30  # characters
_BLOCKS = ("n = 1", "n = 2", "n = n + 1\nprint(n)", "print(n)", "[n] * 3")


def random_walk(
    env: SiteEnv, task: Task, rng: random.Random, steps: int
) -> list[tuple[Observation, EnvAction, Observation]]:
    """`steps` random actions from the first page of `task`, which starts again when the episode ends. Never STOPs.

    Typed texts are spans of the instruction or likely queries, so walks get past search pages.
    """
    walk, observation, over = [], env.reset(task), False
    for _ in range(steps):
        if over:
            observation = env.reset(task)
        action = random_action(env, task, rng)
        result = env.step(action)
        walk.append((observation, action, result.observation))
        observation, over = result.observation, result.terminated or result.truncated
    return walk


def random_action(env: SiteEnv, task: Task, rng: random.Random) -> EnvAction:
    """An action that the shown page accepts: on a random control, on empty fields rather than filled ones."""
    view = env.view
    controls = [(i, c) for i, c in enumerate(view.page.controls, 1) if not c.disabled]
    empty = [(i, c) for i, c in controls if c.role in ("textbox", "combobox", "checkbox") and not view.values[i - 1]]
    if not controls:
        return EnvAction(Command.GOTO, text="/")
    element, control = rng.choice(empty if empty and rng.random() < 0.7 else controls)
    if control.name == "Home" and rng.random() < 0.8:  # otherwise walks stay near the home page
        element, control = rng.choice(controls)
    if control.role == "textbox":
        said = rng.random() < 0.5
        return EnvAction(Command.TYPE, element, random_span(task.instruction, rng) if said else env.random_query(rng))
    labels = [label for label, _ in control.options if label]
    if control.role == "combobox" and labels:
        told = [label for label in labels if f" {label} " in f" {task.instruction} "]
        return EnvAction(Command.SELECT, element, rng.choice(told if told and rng.random() < 0.5 else labels))
    return EnvAction(Command.CLICK, element)


def random_span(text: str, rng: random.Random, longest: int = 4) -> str:
    """One to `longest` consecutive words of `text`."""
    words = text.split()
    start = rng.randrange(len(words))
    return " ".join(words[start : start + rng.randint(1, longest)])


def plausible(text: str, task: Task, rng: random.Random) -> EnvAction:
    """An action chosen by a page's text alone: on an element of its lines, code that keeps a number, words of it.

    SCROLL DOWN if there is no element.
    """
    if task.language is Language.CODE:
        return EnvAction(Verb.RUN, None, rng.choice(_BLOCKS))
    if task.language is Language.TEXT:
        return EnvAction(Verb.SAY, None, _line(f"{task.instruction}\n{text}", text, rng))
    if task.language is Language.TOOL:
        tool = rng.choice(json.loads(task.tools))["function"]
        asked = tool.get("parameters") or {}
        given = {name: asked.get("properties", {}).get(name) for name in asked.get("required", ())}
        return call(tool["name"], {name: _argument(kind, task, text, rng) for name, kind in given.items()})
    found = [match.groups() for line in text.split("\n") if (match := _ELEMENT.match(line))]
    if not found:
        return EnvAction(Command.SCROLL, text="DOWN")
    role, element = rng.choice(found)
    if role == "textbox":
        return EnvAction(Command.TYPE, int(element), random_span(task.instruction, rng))
    return EnvAction(Command.CLICK, int(element))


def _argument(kind: Any, task: Task, text: str, rng: random.Random) -> Any:
    """A value of an argument's JSON schema, as far as it is simple: of its choices, a small number, words in sight."""
    kind = kind if isinstance(kind, dict) else {}
    if choices := kind.get("enum"):
        return rng.choice(choices)
    match kind.get("type"):
        case "integer" | "number":
            return int(kind.get("minimum", 0)) + rng.randrange(4)
        case "boolean":
            return rng.random() < 0.5
        case "array":
            return []
        case "object":
            return {}
    return random_span(f"{task.instruction}\n{text}", rng, 1)


def _line(asked: str, text: str, rng: random.Random) -> str:
    """A number, a phrase that the task or the page offers, or words of the page."""
    offered: list[str] = _OFFERED.findall(asked)
    phrases = [phrase for each in _ENDS.split(asked) if 0 < len(phrase := each.strip()) <= _PHRASE]
    chance = rng.random()
    if chance < 0.3:
        return str(rng.randrange(3))
    if chance < 0.8 and (offered or phrases):
        return rng.choice(offered if offered and rng.random() < 0.5 else phrases or offered)
    return random_span(text, rng, 3)


def refused(task: Task) -> EnvAction | None:
    """An action on what does not exist; None if the language has none that every environment refuses."""
    if task.language is Language.CODE:
        return EnvAction(Verb.RUN, None, "no_such_name_99999")
    if task.language is Language.TOOL:
        return call("no_such_tool_99999", {})
    return EnvAction(Command.CLICK, 99_999) if task.language is Language.WEB else None
