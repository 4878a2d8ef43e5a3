"""The demo's first result: the base on a few held-out tasks, alone and with search, and one of the trees."""

from __future__ import annotations

from agentq.recipes.pipeline import Pipeline
from agentq.recipes.settings import Demo
from agentq.report import write_report
from agentq.report.picture import text_picture
from agentq.store.run import TRAJECTORY
from agentq.types import Split

TASKS = 12
ROWS = 16  # of the tree


def first_look(p: Pipeline, settings: Demo) -> None:
    """Show what search adds before anything is trained. The episodes count towards the base's own row."""
    p.check_base()
    base, sampled, searched = p.start, "base/eval", "base_mcts/look"
    tasks = p.tasks(Split(settings.eval.split), min(TASKS, settings.eval.num_tasks))
    if p.store.count(sampled, TRAJECTORY) < len(tasks):
        p.evaluate("base", sampled, base, tasks, settings.eval)
    by = settings.search, settings.critic, settings.eval, settings.eval.chosen_by
    row = p.evaluate_search("base_mcts", searched, base, tasks, *by)
    alone = {t.task.seed: t.success for t in p.store.trajectories(sampled)}
    trees = list(p.store.trees(searched))
    shown = max(trees, key=lambda tree: (bool(tree.success.any()) - alone[tree.task.seed], -len(tree)))
    solved = sum(alone[task.seed] for task in tasks)
    report = write_report(p.store.path)
    p.status.say(
        f"{text_picture(shown, ROWS)}\n\n"
        f"base: {solved} of {len(tasks)} held-out tasks solved, with search {row.successes} of {row.n}; "
        f"the tree above is one of the searches, more so far: {report}\n"
    )
