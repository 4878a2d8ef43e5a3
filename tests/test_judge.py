"""The outcome judge and budgets, with an engine that answers from a script."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from agentq import envs
from agentq.agent.actions import format_action
from agentq.agent.verdicts import parse_judgement
from agentq.config import Search, Settings
from agentq.critics.judge import OutcomeJudge
from agentq.errors import BudgetSpent
from agentq.eval_settings import ChosenBy, EvalSearch
from agentq.model_settings import CriticSettings
from agentq.policies.budget import Budget, Budgeted
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.protocol import SampledAnswer, SampleRequest
from agentq.policies.usage import Price
from agentq.recipes.pipeline import Pipeline, judge_tokens
from agentq.recipes.resources import Resources
from agentq.searching.rollout import RolloutSettings, rollout
from agentq.searching.selection import SearchSettings
from agentq.searching.tree import TreeSearch
from agentq.store.run import RunStore
from agentq.types import Command, EnvAction, History, Observation, Split, StopReason
from tests.recipes_factory import Quiet
from tests.scripted_engine import Scripted

STOP = format_action(EnvAction(Command.STOP))
CLICK = format_action(EnvAction(Command.CLICK, 1), thought="a thought of its own")


@pytest.mark.parametrize(("critic", "judge"), [(192, 256), (1024, 1024)])
def test_the_judge_of_an_evaluation_may_answer_at_least_as_long_as_its_critic(critic: int, judge: int) -> None:
    most = judge_tokens(CriticSettings(max_new_tokens=critic))
    made = Resources(Settings(), "base", {"base": Scripted(lambda role, text: "a: YES")}).judge(most)
    assert made is not None and made.max_new_tokens == most == judge


@pytest.mark.parametrize("chosen_by", ["value", "best_of_n"])
def test_an_evaluation_gives_its_judge_the_critics_limit(chosen_by: ChosenBy, tmp_path: Path) -> None:
    asked: list[int] = []

    class Limits(Scripted):
        async def sample(self, request: SampleRequest) -> list[SampledAnswer]:
            if request.role == "judge":
                asked.append(request.max_new_tokens)
            return await super().sample(request)

    with RunStore.open(tmp_path / "run", {}) as store:
        p = Pipeline(store, Settings(), "base", Quiet())
        p.engines["base"] = Limits(lambda role, text: "a: YES" if role == "judge" else STOP)
        critic = CriticSettings(model="none", max_new_tokens=700)
        measured = EvalSearch(num_iterations=1, num_tasks=1)
        p.evaluate_search("m", "eval", "base", p.tasks(Split.TEST, 1), Search(), critic, measured, chosen_by)
        p.close()
    assert asked and set(asked) == {700}


@pytest.mark.parametrize("chosen_by", ["value", "best_of_n"])
@pytest.mark.parametrize("answer", ["all is well", "a: NO"])
def test_an_evaluation_counts_answers_of_its_judge_without_a_rubric_and_says_so(
    answer: str, chosen_by: ChosenBy, tmp_path: Path
) -> None:
    told: list[str] = []
    quiet = Quiet()
    quiet.say = told.append  # type: ignore[method-assign]
    with RunStore.open(tmp_path / "run", {}) as store:
        p = Pipeline(store, Settings(), "base", quiet)
        p.engines["base"] = Scripted(lambda role, text: answer if role == "judge" else STOP)
        critic, measured = CriticSettings(model="none"), EvalSearch(num_iterations=2, num_tasks=2)
        p.evaluate_search("m", "eval", "base", p.tasks(Split.TEST, 2), Search(), critic, measured, chosen_by)
        p.close()
        note = store.note("eval") or {}
    asked = note["usage"]["judge"]["requests"]
    if answer == "a: NO":
        assert asked and note["engine"]["faults"] == {} and not told
        return
    assert asked and note["engine"]["faults"] == {"judgement without a rubric": asked}
    assert told == [
        f"m: {asked} of {asked} answers of the judge had no rubric and count as failures. A model that thinks needs "
        "--critic.max_new_tokens 1024 or more; --eval.chosen_by majority asks no judge"
    ]


def test_success_takes_a_rubric_that_holds_throughout() -> None:
    assert parse_judgement("Party of 2: YES\n- Blue Moon Diner - YES.\n**7:30 PM**: NO") == [
        ("Party of 2", True),
        ("Blue Moon Diner", True),
        ("7:30 PM", False),
    ]
    history = History("Book", Observation("heading Done", "/done"), (CLICK, STOP))
    for answer, success in (("a: YES\nb: YES", True), ("a: YES\nb: NO", False), ("YES", False), ("all is well", False)):
        engine = Scripted(lambda role, text, answer=answer: answer)  # type: ignore[misc]
        assert asyncio.run(OutcomeJudge(engine).judge(history)).success is success
    assert engine.asked == ["QUERY: Book\nACTIONS:\nCLICK [1]\nSTOP\nFINAL PAGE: /done\nheading Done"]
    assert engine.usage.of("judge").requests == 1


@pytest.mark.parametrize(
    ("said", "success"),
    [
        ("1. **Party of 2**: **Yes**\n2. **7:30 PM**: yes (shown)", True),
        ("| Party of 2 | YES |\n| 7:30 PM | YES |", True),
        ("Party of 2: ✅\n7:30 PM: ✅", True),
        (
            '[{"criterion": "Party of 2", "met": true, "reason": "no doubt"}, {"criterion": "7:30 PM", "met": "YES"}]',
            True,
        ),
        ('```json\n{"Party of 2": "YES", "7:30 PM": "yes"}\n```', True),
        ("<think>\nParty: NO?\n</think>\nParty of 2: YES", True),
        ("Party of 2: YES\n7:30 PM: No, it shows 8 PM", False),
        ("Party of 2: YES\n7:30 PM: unclear", False),
        ("Party of 2: YES\n7:30 PM: YES, but for tomorrow", False),
        ("Party of 2: ✅\n7:30 PM: ❌", False),
        ('{"Party of 2": "YES", "7:30 PM": "NO (8 PM)"}', False),
        ('{"Party of 2": "YES", "7:30 PM": "the page shows 8 PM"}', False),
        ('[{"criterion": "Party of 2", "met": "partly"}]', False),
        ("<think>\nParty of 2: YES\n</think>\nI cannot tell.", False),
    ],
)
def test_a_rubric_is_read_as_chat_models_write_it(said: str, success: bool) -> None:
    engine = Scripted(lambda role, text: said)
    history = History("Book", Observation("heading Done", "/done"), (STOP,))
    assert asyncio.run(OutcomeJudge(engine).judge(history)).success is success


def test_a_rubric_that_was_cut_off_is_no_success() -> None:
    class Short(Scripted):
        async def sample(self, request: SampleRequest) -> list[SampledAnswer]:
            return [replace(sample, stop_reason=StopReason.LENGTH) for sample in await super().sample(request)]

    history = History("Book", Observation("heading Done", "/done"), (STOP,))
    judgement = asyncio.run(OutcomeJudge(Short(lambda role, text: "a: YES\nb: Y")).judge(history))
    assert judgement.findings[0] == ("a", True) and not judgement.success


@pytest.mark.parametrize("won", [True, False])
def test_a_judges_verdict_takes_the_place_of_the_checkers(won: bool) -> None:
    engine = Scripted(lambda role, text: f"it is done: {'YES' if won else 'NO'}" if role == "judge" else STOP)
    policy, judge = ModelPolicy(engine), OutcomeJudge(engine)
    env, task = envs.make("booking"), envs.task("booking", Split.TRAIN, 0)
    settings = SearchSettings(num_iterations=2, num_proposals=1)
    tree = asyncio.run(TreeSearch(env, task, policy, settings, judge=judge).run())
    assert tree.info["succeeded"] is won and tree.reward.tolist() == [0.0, float(won)]
    episode = asyncio.run(rollout(env, task, policy, RolloutSettings(), judge=judge))
    assert episode is not None and (episode.success, episode.return_) == (won, float(won))


def test_a_search_ends_with_what_it_has_when_its_budget_is_spent() -> None:
    env, task = envs.make("booking"), envs.task("booking", Split.TRAIN, 0)

    def search(budget: Budget, price: Price | None = None) -> tuple[int, int]:
        engine = Scripted(lambda role, text: CLICK)
        policy = ModelPolicy(Budgeted(engine, budget, price))
        tree = asyncio.run(TreeSearch(env, task, policy, SearchSettings(num_iterations=9, num_proposals=1)).run())
        return len(engine.asked), len(tree)

    assert search(Budget(calls=3)) == (3, 4)
    # 60 new tokens, 40 cached and 10 of answers at 1, 0.5 and 2 a million: 1e-4 a call
    assert search(Budget(money=2.5e-4), Price(1.0, 0.5, 2.0)) == (3, 4)
    assert search(Budget(seconds=0.0)) == (0, 1)


def test_a_budget_says_what_was_spent() -> None:
    budget = Budget(calls=0)
    engine = Budgeted(Scripted(lambda role, text: STOP), budget)
    with pytest.raises(BudgetSpent, match="the limit of 0 calls is reached"):
        asyncio.run(ModelPolicy(engine).propose(History("go", Observation("heading A")), 1, seed=0))
