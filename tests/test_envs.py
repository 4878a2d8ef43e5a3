"""The built-in sites as environments: registry, conformance, experts, odd input, pages against their golden text."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentq import envs
from agentq.agent.commands import parse_env_action
from agentq.envs.explore import random_action, random_walk
from agentq.envs.promises import check_env
from agentq.envs.protocol import Env
from agentq.envs.web_env import SiteSnapshot
from agentq.errors import ConfigError, EnvError
from agentq.types import Command, EnvAction, Observation, Split, Task

GOLDEN = Path(__file__).parent / "golden"
STOP = EnvAction(Command.STOP)
SITES = [*envs.names(), "booking/several"]
KNOWN = (
    "booking, shop, chromium/booking, chromium/shop, booking/several, apps, appworld@ADDRESS, gymnasium/ID, "
    "miniwob/PAGE, suite/APP.TASK, webarena:FILE, FILE.py:FUNCTION, NAME@ADDRESS"
)


def solve(env: envs.WebEnv, task: Task) -> tuple[int, bool]:
    """(steps, success) of the expert from the present state on."""
    expert, steps = envs.expert(task.env), 0
    while True:
        result = env.step(expert(task, env).env_action)
        steps += 1
        assert result.error_kind is None, (task, result)
        if result.terminated or result.truncated:
            return steps, result.success


def expert_actions(task: Task) -> list[EnvAction]:
    """The expert's actions for `task` without the last STOP."""
    env, expert, actions = envs.make(task.env), envs.expert(task.env), []
    env.reset(task)
    while (action := expert(task, env).env_action) != STOP:
        actions.append(action)
        env.step(action)
    return actions


@pytest.mark.parametrize(
    ("name", "n", "low", "high", "longest"),
    [("booking", 500, 14.0, 15.5, 18), ("shop", 500, 6.5, 7.5, 10), ("booking/several", 150, 35.0, 39.0, 50)],
)
def test_the_expert_solves_every_task_in_about_the_papers_steps(
    name: str, n: int, low: float, high: float, longest: int
) -> None:
    env, steps = envs.make(name), []
    for task in envs.tasks(name, Split.VALIDATION, n):
        env.reset(task)
        count, success = solve(env, task)
        assert success, task
        steps.append(count)
    assert low < sum(steps) / len(steps) < high
    assert max(steps) <= longest < env.max_steps


@pytest.mark.parametrize("name", SITES)
def test_expert_recovers_from_any_page(name: str) -> None:
    done, kept = ("order", None) if name == "shop" else ("reservations", ())
    env, strayed = envs.make(name), 0
    env.max_steps = 120
    for index, task in enumerate(envs.tasks(name, Split.TRAIN, 60)):
        rng = random.Random(index)
        env.reset(task)
        for _ in range(rng.randrange(1, 15)):
            token = env.snapshot()
            env.step(random_action(env, task, rng))
            if env.session[done] != kept:  # what is booked or bought cannot be undone
                env.restore(token)
        strayed += env.view.url != "/"
        assert solve(env, task)[1], (task, env.view.text())
    assert strayed > 30


@pytest.mark.parametrize("name", SITES)
def test_check_env_holds_on_the_experts_path_and_on_random_walks(name: str) -> None:
    task = envs.task(name, Split.TEST, 3)
    check_env(lambda: envs.make(name), task, expert_actions(task))
    walk = random_walk(envs.make(name), task, random.Random(0), 12)
    check_env(lambda: envs.make(name), task, [action for _, action, _ in walk])


@pytest.mark.parametrize("text", ["HOVER [1]", "DRAG [1] TO [1]", "PRESS Enter"])
def test_sites_in_process_take_no_mouse_and_no_keyboard(text: str) -> None:
    env = envs.make("shop")
    before = env.reset(envs.task("shop", Split.TRAIN, 0))
    result = env.step(parse_env_action(text))
    said = f"this site takes no {text.split()[0]}"
    assert (result.error_kind, result.error_message) == ("not_taken", said)
    assert result.observation.text == f"{before.text}\nerror {said}" and not result.terminated


def test_check_env_names_the_broken_promise() -> None:
    class Forgetful(envs.WebEnv):
        def restore(self, token: SiteSnapshot) -> Observation:
            return super().reset(token.task)

    task = envs.task("shop", Split.TEST, 0)
    kit_env = envs.make("shop")
    with pytest.raises(AssertionError, match=r"restore . gives another page"):
        check_env(lambda: Forgetful(kit_env._kit), task, expert_actions(task))


def test_check_env_takes_sessions_in_turn_and_closes_them() -> None:
    class Closed(envs.WebEnv):
        def close(self) -> None:
            closed.append(self)
            super().close()

        def snapshot(self) -> SiteSnapshot:
            assert not broken, "no snapshot"
            return super().snapshot()

    def make() -> Closed:
        made.append(Closed(kit_env._kit))
        return made[-1]

    task, kit_env = envs.task("shop", Split.TEST, 0), envs.make("shop")
    for broken in (False, True):
        made, closed = list[Closed](), list[Closed]()
        with pytest.raises(AssertionError, match="no snapshot") if broken else nullcontext():
            check_env(make, task, expert_actions(task))
        assert len(made) == 2 and {id(env) for env in made} <= {id(env) for env in closed}


@pytest.mark.parametrize("name", SITES)
def test_restore_is_exact_after_the_episode_ended_and_in_a_fork(name: str) -> None:
    task = envs.task(name, Split.TRAIN, 7)
    env = envs.make(name)
    env.reset(task)
    tokens = [env.snapshot()]
    for action in expert_actions(task):
        env.step(action)
        tokens.append(env.snapshot())
    assert env.step(STOP).success
    for token in random.Random(1).sample(tokens, len(tokens)):
        env.restore(token)
        fork = env.fork()
        assert solve(fork, task)[1]
        assert env.snapshot() is token
        assert not env.step(STOP).success or token is tokens[-1]


def test_env_conforms_to_the_protocol() -> None:
    env: Env = envs.make("booking")
    env.close()
    with pytest.raises(EnvError, match="the environment needs a session; call reset first"):
        env.step(None)


@pytest.mark.parametrize("name", SITES)
def test_splits_are_disjoint_and_tasks_depend_on_the_seed_only(name: str) -> None:
    seeds = {task.seed: task for split in Split for task in envs.tasks(name, split, 5, start=2)}
    assert sorted(seeds) == [base * 1_000_000_000 + i for base in range(4) for i in range(2, 7)]
    assert len({task.instruction for task in seeds.values()}) == 20
    for seed, task in seeds.items():
        assert envs.task_from_seed(name, seed) == task
    assert envs.task(name, "test", 999_999_999).split is Split.TEST


def test_registry_errors_are_one_line_with_the_nearest_name() -> None:
    errors: dict[str, Callable[[], object]] = {
        "no environment 'bookin'; did you mean 'booking'?": lambda: envs.make("bookin"),
        f"no environment 'zzz'; known: {KNOWN}": lambda: envs.expert("zzz"),
        "no environment 'suit/todo.one'; did you mean 'suite/todo.one'?": lambda: envs.make("suit/todo.one"),
        "no environment 'chromium/boking/several'; did you mean 'chromium/booking/several'?": lambda: envs.make(
            "chromium/boking/several"
        ),
        "no split 'trian'; did you mean 'train'?": lambda: envs.task("shop", "trian", 0),
        "task index must be in [0, 1000000000); got -1": lambda: envs.task("shop", "train", -1),
        "task seed must be in [0, 4000000000); got 4000000000": lambda: envs.task_from_seed("shop", 4_000_000_000),
        "task.env must be 'shop'; got 'booking'": lambda: envs.make("shop").reset(envs.task("booking", "train", 0)),
    }
    for message, call in errors.items():
        with pytest.raises(ConfigError) as error:
            call()
        assert str(error.value) == message


def test_errors_and_replies_show_for_one_step_only() -> None:
    env = envs.make("booking")
    first = env.reset(envs.task("booking", "train", 3))
    bad = env.step(EnvAction(Command.CLICK, 9))
    assert bad.observation.text == f"{first.text}\nerror no element [9]"
    assert (bad.error_kind, bad.error_message) == ("no_such_element", "no element [9]")
    assert env.step(None).observation.text == f"{first.text}\nerror unreadable action"
    asked = env.step(EnvAction(Command.ASK_USER, text="which phone and date?"))
    assert asked.observation.text == f"{first.text}\nuser phone 555-4005 , date May 26"
    assert env.step(EnvAction(Command.SCROLL, text="DOWN")).observation == first
    lost = env.step(EnvAction(Command.GOTO, text="/nowhere"))
    assert (lost.error_kind, lost.observation.url) == ("http_404", "/nowhere")
    assert "alert There is no such page" in lost.observation.text
    assert env.step(EnvAction(Command.SCROLL, text="DOWN")).error_kind is None


@pytest.mark.parametrize("name", envs.names())
def test_text_typed_as_html_is_shown_as_text(name: str) -> None:
    env = envs.make(name)
    env.reset(envs.task(name, "train", 0))
    attack = '"><button>Win</button><script>x</script> & &amp;'
    env.step(EnvAction(Command.TYPE, 1, attack))
    lines = env.step(EnvAction(Command.CLICK, 2)).observation.text.split("\n")
    assert lines == [
        "heading Results page 1 of 1",
        f"textbox Search [1]: {attack}",
        "button Find [2]",
        "text Nothing found",
        "link Home [3]",
    ]


def test_characters_no_keyboard_types_never_reach_the_site() -> None:
    env = envs.make("booking")
    env.reset(envs.task("booking", "train", 0))
    env.step(EnvAction(Command.TYPE, 1, "Blue\x00 \ud800\u202eHarbor\x07\n"))
    assert env.step(EnvAction(Command.CLICK, 2)).observation.url == "/find?q=Blue+Harbor"
    went = env.step(EnvAction(Command.GOTO, text="/find?q=Blue%00 \ud800é"))
    assert went.observation.url == "/find?q=Blue%00%20%C3%A9"
    assert went.observation.text.split("\n")[1] == "textbox Search [1]: Blue é"


@pytest.mark.parametrize("name", envs.names())
def test_step_budget_truncates_a_solved_task_with_reward_0(name: str) -> None:
    task = envs.task(name, Split.TEST, 4)
    env, actions = envs.make(name), expert_actions(task)
    env.max_steps = len(actions)
    env.reset(task)
    last = [env.step(action) for action in actions][-1]
    assert (last.truncated, last.terminated, last.reward, last.success) == (True, False, 0.0, False)
    with pytest.raises(EnvError, match="step needs a running episode; this one is over, call reset"):
        env.step(STOP)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
@pytest.mark.parametrize("name", envs.names())
def test_any_action_is_an_observation_never_an_exception(name: str, data: st.DataObject) -> None:
    text = st.one_of(
        st.none(), st.text(max_size=20), st.sampled_from(["/find?q=%00%ff", "/place/٣", "/item/99999?page=x", "?"])
    )
    action = st.builds(EnvAction, st.sampled_from(Command), st.one_of(st.none(), st.integers(-2, 12)), text)
    env = envs.make(name)
    env.reset(envs.task(name, "train", 1))
    for action_taken in data.draw(st.lists(action, max_size=8)):
        result = env.step(action_taken)
        assert len(result.observation.fingerprint) == 16
        roles = {line.split()[0] for line in result.observation.text.split("\n")}
        assert roles <= {
            "heading",
            "text",
            "link",
            "button",
            "textbox",
            "combobox",
            "checkbox",
            "alert",
            "status",
            "error",
            "user",
        }
        if result.terminated:
            break


def shown_pages(name: str) -> Iterator[str]:
    """One page of each kind: the expert's own, then the error pages, each under the action that led to it."""
    task = envs.task(name, "test", 11)
    env = envs.make(name)
    yield f"# {task.instruction}\n{env.reset(task).text}"
    detours = {
        "booking": [
            "/find?q=zzz",
            "/find?q=",
            "/find?q=Blue&page=9",
            "/place/7",
            "/place/7/times?party=9",
            "/place/99999",
        ],
        "shop": ["/search?q=zzz", "/search?q=", "/item/7", "/item/7/details?q=wool&page=2", "/item/x"],
    }[name]
    for path in detours:
        action = EnvAction(Command.GOTO, text=path)
        yield f"# {action}\n{env.step(action).observation.text}"
    actions = expert_actions(task)
    env.reset(task)
    for action in actions:
        if str(action).startswith("TYPE [2]"):  # the details form, sent too early
            early = env.fork()
            yield f"# too early\n{early.step(EnvAction(Command.SUBMIT, 1)).observation.text}"
        yield f"# {action}\n{env.step(action).observation.text}"
    yield f"# after it\n{env.step(EnvAction(Command.GOTO, text='/')).observation.text}"


@pytest.mark.parametrize("name", envs.names())
def test_pages_match_their_golden_text(name: str) -> None:
    """Regenerate with `python -m tests.test_envs`, and read the difference."""
    assert "\n\n".join(shown_pages(name)) + "\n" == (GOLDEN / f"envs_{name}.txt").read_text()


if __name__ == "__main__":
    for site in envs.names():
        (GOLDEN / f"envs_{site}.txt").write_text("\n\n".join(shown_pages(site)) + "\n")
