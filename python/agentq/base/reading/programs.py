"""Exercises in acting by code, a block a turn: the conversation of `apps`, and others about apps that do not exist."""

from __future__ import annotations

from dataclasses import dataclass

from agentq import envs
from agentq.agent.actions import format_action
from agentq.agent.prompts import Messages, policy_messages
from agentq.base.exercises import TrainingExample
from agentq.base.reading.copying import quoted
from agentq.base.reading.words import Words
from agentq.envs.apps.scenarios import ANSWER, DONE, start
from agentq.envs.lexicon import words
from agentq.types import EnvAction, History, Language, Observation, Split, Status, Verb

SITE = "apps/1"
NOTHING = "no output"  # what `apps` shows after a block that prints nothing


def conversation(messages: Messages, answer: str) -> TrainingExample:
    """An episode's last prompt and its answer as an exercise in which each of its answers is learned."""
    first, *later = (message["content"] for message in messages if message["role"] == "user")
    said = [message["content"] for message in messages if message["role"] == "assistant"] + [answer]
    asked = [{"role": "user", "content": first}]
    return TrainingExample(asked, said[0], tuple(zip(later, said[1:], strict=True)))


@dataclass(frozen=True, slots=True)
class Programs:
    """Whole episodes of the expert of `apps/1`."""

    episodes: list[TrainingExample]

    @classmethod
    def collect(cls, n: int, *, first_task: int = 0) -> Programs:
        """`n` episodes of BASE tasks from index `first_task`."""
        env, expert, found = envs.make(SITE), envs.expert(SITE), list[TrainingExample]()
        for index in range(first_task, first_task + n):
            task = envs.task(SITE, Split.BASE, index)
            history = History.of(task, env.reset(task))
            while True:
                advice = expert(task, env)
                text = format_action(advice.env_action, thought=advice.thought, status=advice.status)
                result = env.step(advice.env_action)
                if result.terminated or result.truncated:
                    break
                history = history.then(text, result.observation)
            found.append(conversation(policy_messages(history), text))
        env.close()
        return cls(found)

    def block(self, w: Words) -> TrainingExample:
        """An episode of the expert of `apps/1`."""
        return self.episodes[w.below(len(self.episodes))]


def session(w: Words) -> TrainingExample:
    """A request to an app that does not exist: log in, look, then answer with a field or change it."""
    app, noun, title = w.word().lower(), w.one(_NOUNS), w.title() if w.chance(0.5) else w.word().capitalize()
    names = list(dict.fromkeys(w.one(_FIELDS) if w.chance(0.5) else w.word().lower() for _ in range(2 + w.below(4))))
    row = {f"{noun}_id": 1 + w.below(90), "title": title, **{name: _value(w) for name in names}}
    field, new = w.one(names), w.value()
    look = f'{noun} = apis.{app}.search_{noun}s(access_token={app}, query="{title}")[0]\nprint({noun})'
    if w.chance(0.5):
        asked = w.one(_ASKED).format(field=field, noun=noun, title=title, app=app)
        look += f'\nanswer = {noun}["{field}"]'
        last = ANSWER
    else:
        asked = w.one(_CHANGED).format(field=field, noun=noun, title=title, app=app, new=quoted(w, new))
        last = f'apis.{app}.update_{noun}(access_token={app}, {noun}_id={noun}["{noun}_id"], {field}="{new}")\n{DONE}'
    me = f"{w.name()} {w.surname()}"
    page = f"You act for {me}, {me.lower().replace(' ', '.')}@mail.com. Today is {w.date()}."
    history = History(asked, Observation(page), (), (), Language.CODE, True)
    for thought, code, shown in (("log in", start(app), NOTHING), ("look", look, repr(row))):
        history = history.then(_said(thought, code), Observation(shown))
    return conversation(policy_messages(history), _said("complete the task", last, Status.DONE))


def _said(thought: str, code: str, status: Status = Status.CONTINUE) -> str:
    return format_action(EnvAction(Verb.RUN, text=code), thought=thought, status=status)


def _value(w: Words) -> str | int:
    return 1 + w.below(500) if w.chance(0.3) else w.value()


_NOUNS = words("note event task song message item order file photo list card trip book plan")
_FIELDS = words("date start end place price color owner size status city phone email number text folder length")
_ASKED = (
    "What is the {field} of the {noun} {title} in my {app}?",
    "Which {field} has the {noun} {title} in {app}?",
    "Tell me the {field} of {title} , a {noun} in my {app}.",
)
_CHANGED = (
    "Change the {field} of the {noun} {title} in my {app} to {new}.",
    "Set the {field} of {title} in {app} to {new} , it is a {noun}.",
    "The {noun} {title} in my {app} has a new {field} : {new}. Put that into it.",
)
