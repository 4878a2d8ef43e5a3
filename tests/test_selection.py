"""Selection rules in a search: against a slow twin, by invariants, from the same seed, in a world that fails."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from agentq import envs
from agentq._core import Forest
from agentq.cli import main
from agentq.cli.app import COMMANDS, searching
from agentq.config import Selection
from agentq.critics.ranker import rank_values
from agentq.errors import ConfigError
from agentq.policies.scripted import ScriptedPolicy
from agentq.searching.selection import GO_WIDER, SearchSettings, check_forest, forest_for, priors
from agentq.searching.steps import search_steps
from agentq.searching.tree import TreeSearch
from agentq.seeds import Stream, task_seed
from agentq.store.records import TreeRecord
from agentq.types import EnvAction, History, Observation, Proposal, StepResult
from tests.faults_lab import TASK as BOOKING
from tests.faults_lab import Fails, mostly_right
from tests.records_factory import make_proposal
from tests.test_search import CODE, TASK, Lock, _click, _same

RULES: tuple[Selection, ...] = get_args(Selection)
SIDE_BY_SIDE = [rule for rule in RULES if rule not in GO_WIDER]


def _uneven(history: History, rng: np.random.Generator) -> tuple[str, float]:
    """A click whose log-probability depends on the path, so that priors differ."""
    text, _ = _click(history, rng)
    return text, -float((len(history.actions) + 1) * (1 + ("[1]" in text)) + ("[2]" in text))


class _Shuffles:
    """A critic whose ranks follow from the seed."""

    async def rank(self, history: History, proposals: Any, *, seed: int) -> list[float]:
        return rank_values(np.random.default_rng(seed).permutation(len(proposals)).tolist())


def _search(env: Any = None, rule: Selection = "ucb1", **settings: Any) -> TreeRecord:
    more = {name: settings.pop(name) for name in ("critic", "make_env", "policy") if name in settings}
    s = SearchSettings(**({"num_iterations": 14, "num_proposals": 6, "selection": rule, "seed": 3} | settings))
    policy = more.pop("policy", None) or ScriptedPolicy(_uneven)
    return asyncio.run(TreeSearch(Lock() if env is None else env, TASK, policy, s, **more).run())


def _booking(env: Any, rule: Selection, iterations: int = 12, leaves: int = 1) -> TreeRecord:
    s = SearchSettings(iterations, 4, selection=rule, seed=0, leaves_in_flight=leaves)
    more = {"make_env": lambda: envs.make("booking")} if leaves > 1 else {}
    return asyncio.run(TreeSearch(env, BOOKING, ScriptedPolicy(mostly_right), s, **more).run())  # type: ignore[arg-type]


# against a slow twin


class _Twin:
    """The search of the lock in plain Python: a node is its clicks; rules as their papers write them."""

    def __init__(self, rule: str, iterations: int, k: int, seed: int, alpha: float = 1.0) -> None:
        self.rule, self.k, self.seed, self.alpha, self.samples = rule, k, seed, alpha, 0
        self.children: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        self.n: dict[tuple[int, ...], int] = {(): 0}
        self.w: dict[tuple[int, ...], float] = {(): 0.0}
        self.value: dict[tuple[int, ...], float] = {}
        self.prior: dict[tuple[int, ...], float] = {}
        self.made = [()]  # in order
        for _ in range(iterations):
            if self.done(()):
                break
            self.iterate()

    def done(self, node: tuple[int, ...]) -> bool:
        if len(node) == len(CODE):
            return self.n[node] > 0
        return node in self.children and all(map(self.done, self.children[node]))

    def score(self, parent: tuple[int, ...], node: tuple[int, ...]) -> float:
        n, visits = self.n[node], max(1, self.n[parent])
        q = self.alpha * self.w[node] / max(1, n) + (1 - self.alpha) * self.value[node]
        if self.rule == "puct":
            return q + self.prior[node] * math.sqrt(visits) / (1 + n)
        if self.rule == "uct":
            return q + math.sqrt(math.log(visits) / n) if n else math.inf
        return q + math.sqrt(math.log(visits) / (1 + n))

    def leaf(self) -> tuple[int, ...]:
        if self.rule == "best_first":
            leaves = [node for node in self.made if node not in self.children and not self.done(node)]
            return max(leaves, key=lambda node: self.value.get(node, 0.0))  # the first of equals
        node: tuple[int, ...] = ()
        while node in self.children:
            open_ones = [child for child in self.children[node] if not self.done(child)]
            scores = {child: self.score(node, child) for child in open_ones}
            node = max(open_ones, key=lambda child: (scores[child], -self.n[child]))
        return node

    def iterate(self) -> None:
        node = self.leaf()
        while len(node) < len(CODE):
            node = self.expand(node)
        for depth in range(len(node) + 1):
            self.n[node[:depth]] += 1
            self.w[node[:depth]] += node == CODE

    def expand(self, node: tuple[int, ...]) -> tuple[int, ...]:
        lock = Lock()
        lock.clicked = node
        history = History(TASK.instruction, lock._page(), tuple("x" for _ in node))
        seed = task_seed(self.seed, TASK, Stream.TREE, self.samples)
        self.samples += 1
        rng, logps, drawn = np.random.default_rng(seed), dict[int, float](), list[int]()
        for _ in range(self.k):
            text, logp = _uneven(history, rng)
            drawn.append(int(text.split("[")[1][0]))
            logps.setdefault(drawn[-1], logp)
        clicks = sorted(logps, key=lambda click: -drawn.count(click))
        values = (
            rank_values(np.random.default_rng(seed).permutation(len(clicks)).tolist()) if len(clicks) > 1 else [0.5]
        )
        total = sum(math.exp(logp) for logp in logps.values())
        ranked = sorted(range(len(clicks)), key=lambda i: -values[i])
        self.children[node] = [(*node, clicks[i]) for i in ranked]
        for i in ranked:
            child = (*node, clicks[i])
            self.n[child], self.w[child], self.value[child] = 0, 0.0, values[i]
            self.prior[child] = math.exp(logps[clicks[i]]) / total
            self.made.append(child)
        return (*node, drawn[0])


@pytest.mark.parametrize(
    ("rule", "alpha"), [("ucb1", 1.0), ("uct", 1.0), ("puct", 1.0), ("best_first", 1.0), ("ucb1", 0.5), ("puct", 0.75)]
)
@pytest.mark.parametrize("seed", range(4))
def test_a_search_is_its_slow_twin(rule: Selection, alpha: float, seed: int) -> None:
    tree = _search(rule=rule, seed=seed, alpha=alpha, critic=_Shuffles())
    twin = _Twin(rule, 14, 6, seed, alpha)
    clicks = [tuple(tree.proposal[i].action.env_action.element for i in tree.path(at)[1:]) for at in range(len(tree))]  # type: ignore[union-attr]
    assert dict(zip(clicks, tree.visit_count.tolist(), strict=True)) == twin.n
    assert dict(zip(clicks, tree.value_sum.tolist(), strict=True)) == twin.w


def test_rules_differ() -> None:
    def counts(rule: Selection) -> tuple[bytes, ...]:
        return tuple(_search(rule=rule, critic=_Shuffles(), seed=seed).visit_count.tobytes() for seed in range(4))

    rules = [rule for rule in RULES if rule != "uct"]  # as ucb1 until a success is found; it has its twin
    assert len({counts(rule) for rule in rules}) == len(rules)


# priors


def _likely(*logps: float) -> Proposal:
    return replace(make_proposal(1, tokens=len(logps)), logps=np.array(logps, dtype=np.float32))


def test_priors_are_the_softmax_of_whole_log_probabilities() -> None:
    long = _likely(-0.5, -0.5, -1.0)  # -2 in sum, whatever its length
    short = _likely(-1.0)
    expected = [math.exp(-2) / (math.exp(-2) + math.exp(-1)), math.exp(-1) / (math.exp(-2) + math.exp(-1))]
    assert priors([long, short]) == pytest.approx(expected)
    assert priors([_likely(-2000.0), _likely(-2000.0)]).tolist() == [0.5, 0.5]


@pytest.mark.parametrize("rule", ["puct", "gumbel"])
def test_a_rule_with_priors_refuses_an_engine_without_log_probabilities(rule: Selection) -> None:
    class Silent(ScriptedPolicy):
        async def propose(self, *args: Any, **kwargs: Any) -> list[Proposal]:
            return [_likely()]

    with pytest.raises(ConfigError, match="must not be puct or gumbel with an engine that reports no log-prob"):
        _search(rule=rule, policy=Silent(_click))
    assert _search(rule="uct", policy=ScriptedPolicy(_click)).visit_count[0] > 0


# what cannot be served


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"selection": "thompson_beta", "leaves_in_flight": 2},
            "leaves_in_flight must be 1 with thompson_beta, .*; got 2",
        ),
        ({"selection": "gumbel", "alpha": 0.5}, "search.alpha must be 1 with gumbel, .*; got 0.5"),
        ({"selection": "gumbel", "num_iterations": 2**40}, "must not be gumbel if the number of rollouts"),
        ({"selection": "uctt"}, "search.selection must be a rule; got 'uctt'; did you mean 'uct'?"),
        ({"selection": None}, "search.selection must be a rule; got None; known: best_first, gumbel, "),
        ({"c_exp": math.nan}, "c_exp must be finite, at least 0; got nan"),
        ({"c_exp": -1.0}, "c_exp must be finite, at least 0; got -1.0"),
        ({"temperature": math.inf}, "temperature must be finite, at least 0; got inf"),
        ({"alpha": 1.5}, "alpha must be finite, at least 0 and at most 1; got 1.5"),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        SearchSettings(**settings)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"selection": "thompson_beta"}, "forest.selection must be 'ucb1' for this search; got 'thompson_beta'"),
        ({"c_exp": 2.0}, r"forest.c_exp must be 1\.0 for this search; got 2\.0"),
        ({"alpha": 0.5}, r"forest.alpha must be 1\.0 for this search; got 0\.5"),
        ({"seed": 5}, r"forest.seed must be \d+ for this search; got \d+"),
    ],
)
def test_a_forest_that_the_search_cannot_serve_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_forest(forest_for(SearchSettings(**given), TASK), SearchSettings(), TASK)
    with pytest.raises(ValueError, match=r"forest\.exhaust must be True"):
        check_forest(Forest(exhaust=False), SearchSettings(), TASK)


def test_the_commands_refuse_what_does_not_fit(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    words = ["--search.selection=thompson_beta", "--search.leaves_in_flight=2", f"--run.out={tmp_path / 'x'}"]
    assert main(["demo", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("agentq: search.leaves_in_flight must be 1 with thompson_beta")
    assert main(["demo", "--search.selection=best", words[2]]) == 2
    assert "search.selection must be 'ucb1', 'uct', 'puct'" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_search_on_the_command_line_is_of_the_tree_or_of_each_step() -> None:
    for words, wanted in (
        (["eval", "--search", "m"], "tree"),
        (["eval", "m", "--search"], "tree"),
        (["eval", "m", "--search", "tree"], "tree"),
        (["eval", "--search", "step", "m", "--seed=1"], "step"),
        (["eval", "m", "--search", "--search.c_exp=2"], "tree"),
        (["eval", "m", "--search.c_exp", "2"], None),
        (["eval", "m"], None),
    ):
        args = COMMANDS["eval"].parse(searching(words[1:]))
        assert (args.search, args.checkpoint) == (wanted, "m")


# draws


@pytest.mark.parametrize("rule", RULES)
def test_a_tree_follows_from_the_seed_alone(rule: Selection) -> None:
    trees = [_search(rule=rule, critic=_Shuffles(), seed=seed) for seed in (3, 3, 4)]
    assert _same(trees[0], trees[1]) and not _same(trees[0], trees[2])
    for tree in trees:
        assert tree.visit_count[0] == tree.info["iterations"] == 14
        for node in range(len(tree)):
            if len(children := tree.children(node)):
                assert tree.visit_count[children].sum() == tree.visit_count[node]


def test_gumbel_halves_the_first_actions_over_the_whole_budget() -> None:
    """Four first actions, 16 rollouts: two phases, 2 each of four, then 4 each of the best two."""

    class Wide(Lock):
        def step(self, env_action: EnvAction | None) -> StepResult:
            assert env_action is not None and env_action.element is not None
            self.clicked += (env_action.element,)
            return StepResult(self._page(), 0.0, terminated=len(self.clicked) == 6)

    def act(history: History, rng: np.random.Generator) -> tuple[str, float]:
        return f"COMMANDS: CLICK [{rng.integers(4)}]", -1.0

    tree = _search(Wide(), "gumbel", num_iterations=16, num_proposals=40, policy=ScriptedPolicy(act))
    assert sorted(tree.visit_count[tree.children(0)].tolist()) == [2, 2, 6, 6]


@pytest.mark.parametrize("rule", GO_WIDER)
def test_thompson_goes_wider_by_untried_proposals_then_by_further_samples(rule: Selection) -> None:
    """With one proposal a node, children beyond the first are further samples; one that is there is visited again."""
    tree = _search(rule=rule, num_iterations=40, num_proposals=1)
    widths = [len(tree.children(node)) for node in range(len(tree))]
    assert max(widths) > 1 and tree.visit_count[0] == 40
    for node in range(len(tree)):
        clicks = [tree.proposal[i].action.env_action for i in tree.children(node)]  # type: ignore[union-attr]
        assert len(set(clicks)) == len(clicks) <= 3
    ends = np.flatnonzero(tree.depth == 3)
    assert tree.visit_count[ends].max() > 1  # a finished episode counts again, without a step
    assert tree.info["env_steps"] <= len(tree) - 1


def test_thompson_beta_refuses_a_return_that_it_cannot_take_in_one_line() -> None:
    class Rich(Lock):
        def step(self, env_action: EnvAction | None) -> StepResult:
            result = super().step(env_action)
            return replace(result, reward=self.pays * result.terminated)

        pays = 3.0

    said = r"^the returns of lock must be in \[0, 1\] for search.selection thompson_beta; got 3: use thompson_gaussian$"
    with pytest.raises(ConfigError, match=said):
        _search(Rich(), "thompson_beta")
    Rich.pays = -0.5
    with pytest.raises(ConfigError, match=r"thompson_beta; got -0\.5"):
        _search(Rich(), "thompson_beta")
    assert _search(Rich(), "thompson_gaussian").visit_count[0] == 14
    Rich.pays = sum([0.05] * 20)  # 1.0000000000000002
    assert _search(Rich(), "thompson_beta").visit_count[0] == 14


# several leaves


@pytest.mark.parametrize("rule", SIDE_BY_SIDE)
@pytest.mark.parametrize("leaves", [2, 4])
@pytest.mark.parametrize("restores", [True, False])
def test_timing_does_not_show_in_a_tree_of_several_leaves(rule: Selection, leaves: int, restores: bool) -> None:
    rng = np.random.default_rng(0)

    class Jittery(Lock):
        def step(self, env_action: EnvAction | None) -> StepResult:
            time.sleep(float(rng.uniform(0, 0.004)))
            return super().step(env_action)

    def found(kind: Callable[..., Lock], *, blocking: bool) -> TreeRecord:
        def make_env() -> Lock:
            return kind(restores, blocking=blocking)

        return _search(make_env(), rule, leaves_in_flight=leaves, critic=_Shuffles(), make_env=make_env)

    calm = found(Lock, blocking=False)
    assert all(_same(calm, found(Jittery, blocking=True)) for _ in range(2))
    assert calm.visit_count[0] == calm.info["iterations"] == 14
    other = _search(rule=rule, critic=_Shuffles())
    assert not _same(calm, other)  # what is in flight counts


def test_leaves_in_flight_act_at_once_in_sessions_of_their_own() -> None:
    """Both second steps of a batch meet, or the barrier breaks; the sessions that the search made are closed."""
    meeting, closed = threading.Barrier(2, timeout=60), list[int]()

    class Meets(Lock):
        def step(self, env_action: EnvAction | None) -> StepResult:
            if self.deep:
                meeting.wait()
            return super().step(env_action)

        deep = False

        def restore(self, token: tuple[int, ...]) -> Observation:
            self.deep = True  # the first rollout is alone and restores nothing
            return super().restore(token)

        def close(self) -> None:
            closed.append(1)

    def make_env() -> Meets:
        return Meets(blocking=True)

    tree = _search(make_env(), num_iterations=3, leaves_in_flight=2, make_env=make_env, num_proposals=9)
    assert tree.visit_count[0] == 3 and len(closed) == 1


def test_an_environment_that_cannot_fork_needs_sessions_for_several_leaves() -> None:
    with pytest.raises(ValueError, match="several leaves in flight need make_env or an environment that can fork"):
        _search(Lock(False), leaves_in_flight=2)
    forked = SearchSettings(8, 4, leaves_in_flight=2)
    tree = asyncio.run(TreeSearch(envs.make("booking"), BOOKING, ScriptedPolicy(mostly_right), forked).run())
    assert tree.visit_count[0] == 8


# faults of the world


@pytest.mark.parametrize("restores", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_a_broken_rollout_is_cancelled_under_every_rule(rule: Selection, restores: bool) -> None:
    count = iter(range(10**6))
    env = Fails(lambda resets, steps: "network" if next(count) == 30 else None, restores=restores)
    tree = _booking(env, rule)
    assert tree.info["faults"] == {"network": 1} and tree.visit_count[0] == tree.info["iterations"] == 11
    _check_counts(tree)


@pytest.mark.parametrize("rule", RULES)
def test_a_node_that_breaks_twice_is_left_alone_under_every_rule(rule: Selection) -> None:
    class Trap(Fails):
        """The first action that is ever taken at the first page never answers."""

        trap: EnvAction | None = None

        def step(self, env_action: EnvAction | None) -> StepResult:
            Trap.trap = Trap.trap or env_action
            self.when = lambda resets, steps: "session_lost" if steps == 1 and env_action == Trap.trap else None
            return super().step(env_action)

    tree = _booking(Trap(), rule, 14)
    assert tree.info["faults"] == {"session_lost": 2} and tree.visit_count[tree.broken].tolist() == [0]
    assert tree.visit_count[0] == tree.info["iterations"] > 0
    _check_counts(tree)


@pytest.mark.parametrize("rule", SIDE_BY_SIDE)
def test_a_fault_in_one_of_several_leaves_cancels_that_rollout_alone(rule: Selection) -> None:
    count = iter(range(10**6))
    env = Fails(lambda resets, steps: "browser_lost" if next(count) == 40 else None, restores=True)
    tree = _booking(env, rule, 16, leaves=4)
    assert tree.info["faults"] == {"browser_lost": 1} and tree.visit_count[0] == tree.info["iterations"] == 15
    _check_counts(tree)


def _check_counts(tree: TreeRecord) -> None:
    assert not tree.visit_count[tree.broken].any()
    for node in range(len(tree)):
        if len(children := tree.children(node)):
            assert tree.visit_count[children].sum() == tree.visit_count[node]


def test_a_failing_model_leaves_nothing_in_flight() -> None:
    calls = iter(range(100))

    def fail(history: History, rng: np.random.Generator) -> tuple[str, float]:
        if next(calls) > 15:
            raise RuntimeError("the model died")
        return _click(history, rng)

    settings = SearchSettings(20, 4, leaves_in_flight=3)
    search = TreeSearch(Lock(), TASK, ScriptedPolicy(fail), settings, make_env=Lock)
    with pytest.raises(RuntimeError, match="the model died"):
        asyncio.run(search.run())
    assert search.forest.num_in_flight == 0


# an episode that searches at each step


def _steps(env: Lock | None = None, **settings: Any) -> TreeRecord:
    s = SearchSettings(**({"num_iterations": 6, "num_proposals": 30, "seed": 1} | settings))
    search = TreeSearch(env or Lock(), TASK, ScriptedPolicy(_uneven), s, make_env=Lock)
    return asyncio.run(search_steps(search))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("restores", [True, False])
def test_a_step_search_takes_one_path_and_keeps_what_it_knows_below_it(rule: Selection, restores: bool) -> None:
    path = _steps(Lock(restores), selection=rule, num_iterations=30)
    assert path.parent.tolist() == [-1, 0, 1, 2] and path.flags.tolist() == [0, 0, 0, 1]
    n, w = path.visit_count.tolist(), path.value_sum.tolist()
    assert path.info["succeeded"] == bool(path.success[3]) == (w[3] > 0) and not path.success[:3].any()
    assert n[0] >= n[3] > 0 and path.info["iterations"] >= n[0]
    assert path.info["succeeded"] or rule in GO_WIDER  # the others see all 27 ends
    same = _steps(Lock(restores), selection=rule, num_iterations=30)
    assert _same(path, same)


def test_a_step_search_prefers_one_success_to_many_failures() -> None:
    """Taking the most visited action would turn away from an end that is not visited again."""
    path = _steps(num_iterations=27, seed=0)
    assert path.info["succeeded"] and path.value_sum[1] == 1.0  # its siblings have 9 visits each as well
    alone = _steps(num_iterations=40, stop_on_success=True)
    assert alone.info["succeeded"] and alone.info["iterations"] == alone.visit_count[0]  # no rollout after the success


def test_a_step_search_adds_rollouts_to_those_it_has() -> None:
    few = _steps(num_iterations=2)
    assert few.info["iterations"] > 2 and few.visit_count[0] == 2
    assert few.visit_count[1] <= 2 and few.visit_count[2] <= 2 + few.visit_count[1]


def test_a_step_search_without_a_first_page_or_a_rollout_is_broken() -> None:
    def stepped(env: Any) -> TreeRecord:
        search = TreeSearch(env, BOOKING, ScriptedPolicy(mostly_right), SearchSettings(5, 3))
        return asyncio.run(search_steps(search))

    assert stepped(Fails(starts=lambda resets: False)).fault == "reset_failed"
    lost = stepped(Fails(lambda resets, steps: "session_lost"))
    assert lost.fault == "session_lost" and len(lost) == 1 and not lost.info["succeeded"]
