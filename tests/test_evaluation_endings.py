"""How tasks ended: the reason of each failure, the errors of all steps, and the comparison with the base."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from agentq.evaluation.endings import end_of_episode, end_of_tree
from agentq.evaluation.outcomes import of_episode
from agentq.evaluation.stats import paired_difference
from agentq.recipes.pipeline import BASE_STAGE, Pipeline
from agentq.results import Evaluation
from agentq.store import RunStore
from agentq.types import Action, Command, EnvAction, Observation, Proposal, Step, StepResult, StopReason, Trajectory
from tests.records_factory import click, make_proposal, make_task, make_trajectory, make_tree
from tests.view_factory import looped, lost


def stopped() -> Trajectory:
    """A failure that ends with STOP."""
    t = make_trajectory(4, success=False)
    stop = make_proposal(1, env_action=EnvAction(Command.STOP))
    return replace(t, steps=(*t.steps[:-1], replace(t.steps[-1], proposal=stop)))


def test_an_episodes_stop_is_what_ended_it() -> None:
    t = make_trajectory(4, success=False)
    cut = replace(t.steps[-1].result, terminated=False, truncated=True)
    late = replace(t, steps=(*t.steps[:-1], replace(t.steps[-1], result=cut)))
    never = Trajectory(make_task(), (), 0.0, False, {"error_kind": "reset_failed"})
    episodes = [make_trajectory(4), stopped(), t, late, looped(), lost(), never]
    assert [end_of_episode(each).stop for each in episodes] == [
        *("", "ended by the agent", "ended by the site", "out of steps", "loop", "network", "reset_failed")
    ]
    assert end_of_episode(looped()).errors == ["timeout", "loop"]  # the second step's is not what ended it


def test_a_step_that_is_repeated_in_vain_is_an_error() -> None:
    t = make_trajectory(4, success=False)
    page, other = Observation("page"), Observation("other")
    one, two = (make_proposal(n, env_action=click(n)) for n in (1, 2))

    def took(proposal: Proposal, after: Observation, before: Observation = page, kind: str | None = None) -> Step:
        return Step(before, proposal, StepResult(after, error_kind=kind))

    def vain(*steps: Step) -> list[str]:
        return end_of_episode(replace(t, steps=steps)).errors

    again = took(one, page)
    assert vain(again, again, again) == ["repeated in vain"] * 2
    assert vain(again, took(two, page), again) == []  # another action between them
    assert vain(took(one, other), took(one, page, other)) == vain(again, took(one, other)) == []  # the page changes
    assert vain(again, took(one, page, kind="disabled")) == ["disabled"]


def test_an_unreadable_action_that_ran_out_of_tokens_is_told_apart() -> None:
    t, lost = (
        make_trajectory(4, success=False),
        replace(make_proposal(1, env_action=click(1)), stop_reason=StopReason.LENGTH),
    )
    unreadable = replace(lost, action=Action("Let me think", None, parse_error="none"))
    whole = replace(unreadable, stop_reason=StopReason.EOS)

    def took(proposal: Proposal, kind: str | None = "unreadable") -> Step:
        return Step(Observation("page"), proposal, StepResult(Observation("page 2"), error_kind=kind))

    steps = took(unreadable), took(whole), took(lost, None)
    assert end_of_episode(replace(t, steps=steps)).errors == ["cut off at model.max_new_tokens", "unreadable"]
    assert str(Evaluation((replace(t, steps=steps),))).endswith(", 1 actions cut off at max_new_tokens)")
    tree = make_tree(0)
    place = tree.error_kind.index("timeout")
    tree.proposal[place], tree.error_kind[place] = unreadable, "unreadable"
    assert sorted(end_of_tree(tree).errors) == ["cut off at model.max_new_tokens", "timeout", "timeout"]


def test_a_search_without_success_says_so_or_names_the_fault() -> None:
    tree = make_tree(0)
    assert end_of_tree(tree).stop == "" and end_of_tree(tree).errors == ["timeout"] * 3
    tree.success[:] = False
    assert end_of_tree(tree).stop == "no success found"
    tree.visit_count[0], tree.info["faults"] = 0, {"network": 2}
    assert end_of_tree(tree).stop == "network"


def test_a_row_is_compared_with_the_base_on_the_tasks_that_neither_lost(tmp_path: Path) -> None:
    wins = {BASE_STAGE: [0, 0, 1, 0, 0], "rft/eval": [1, 1, 1, 0, 1]}
    with RunStore.open(tmp_path / "run", {}) as store:
        for stage, won in wins.items():
            for seed, success in enumerate(won):
                t = lost(seed) if (stage, seed) == ("rft/eval", 4) else make_trajectory(seed, success=bool(success))
                store.add_trajectory(stage, f"{seed}/0", t)
        pipeline = SimpleNamespace(store=store)
        outcomes = [of_episode(t) for t in store.trajectories("rft/eval")]
        found = Pipeline._against_base(pipeline, "rft/eval", outcomes)  # type: ignore[arg-type]
        whole = paired_difference([True, True, True, False], [False, False, True, False])
        assert found is not None and found["diff"] == whole.diff == 0.5 and found["low"] == whole.low
        assert Pipeline._against_base(pipeline, BASE_STAGE, outcomes) is None  # type: ignore[arg-type]
        gone = [of_episode(lost(seed)) for seed in range(5)]
        assert Pipeline._against_base(pipeline, "rft/eval", gone) is None  # type: ignore[arg-type]
        assert Pipeline._against_base(pipeline, "other", outcomes[:3]) is None  # type: ignore[arg-type]
