"""A server that lies: whatever it answers, the client ends with one line or with data on the step."""

from __future__ import annotations

from collections import Counter

import pytest
from hostile_env import HostileServer, answering, mutations, survived

from agentq.envs.remote.client import RemoteEnv
from agentq.errors import EnvError
from agentq.types import Command, EnvAction, Split, Task


def test_no_answer_becomes_a_traceback() -> None:
    counts: Counter[str] = Counter()
    wrong = {}
    with HostileServer(answering()) as server:
        assert survived(server, answering()) == "step"
        for what, answer in mutations():
            came = survived(server, answer)
            counts[came] += 1
            if came not in ("refused", "step"):
                wrong[what] = came
    assert wrong == {}
    assert counts["refused"] > 400 and counts["step"] > 100


@pytest.mark.parametrize(
    ("call", "field", "value", "said"),
    [
        ("hello", "deadline_s", "1e300", "deadline_s: input should be less than or equal to 86400, not 1e+300"),
        ("hello", "deadline_s", "NaN", "deadline_s: input should be a finite number, not nan"),
        ("hello", "max_steps", "9" * 400, f"max_steps: input should be less than or equal to 1000000, not {'9' * 60}"),
        ("reset", "text", "5", "text: input should be a valid string, not 5"),
    ],
)
def test_what_is_out_of_bounds_is_told_in_one_line(call: str, field: str, value: str, said: str) -> None:
    with HostileServer(answering(call, **{field: value})) as server, pytest.raises(EnvError) as error:
        RemoteEnv(f"fake@{server.at}").reset(Task(f"fake@{server.at}", 0, Split.TRAIN, "go"))
    assert str(error.value).endswith(f"the reply to {call} is wrong in {said}")


@pytest.mark.parametrize("reward", ["1e308", "-1e308", "1e999", "NaN", '"much"'])
def test_a_reward_beyond_bounds_ends_the_episode(reward: str) -> None:
    with HostileServer(answering("step", reward=reward)) as server:
        env = RemoteEnv(f"fake@{server.at}")
        env.reset(Task(env.name, 0, Split.TRAIN, "go"))
        result = env.step(EnvAction(Command.CLICK, 1))
    assert (result.error_kind, result.reward, result.truncated) == ("session_lost", 0.0, True)
    assert result.error_message.startswith("the reply to step is wrong in reward: input should be")


def test_what_a_server_says_cannot_steer_a_terminal() -> None:
    with HostileServer(answering("step", error_kind='"a b\\u001b[2J"', error_message='"x\\r\\ny\\u2028"')) as server:
        env = RemoteEnv(f"fake@{server.at}")
        env.reset(Task(env.name, 0, Split.TRAIN, "go"))
        result = env.step(EnvAction(Command.CLICK, 1))
    assert (result.error_kind, result.error_message) == ("a_b[2J", "x y")
    assert result.observation.text == "heading b\nerror x y"
