"""`write_report`: one self-contained HTML page about a run. Reads the run, writes report.html, changes nothing else."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from agentq.envs.replies import one_line
from agentq.policies.usage import Tally, Usage, count
from agentq.progress import by_count, first_prompts
from agentq.report import compare
from agentq.report.charts import finite_points, histogram, line_plot, success_bars
from agentq.report.examples import Example, Examples
from agentq.report.summary import read_summary
from agentq.searching.faults import fault_message
from agentq.status import StageDisplay
from agentq.store.durable import check_page, write_page
from agentq.store.files import flatten, read_metrics, read_object
from agentq.store.records import TreeRecord
from agentq.store.run import TRAJECTORY, TREE, RunStore
from agentq.store.stages import left_out, or_empty, whole_note, whole_trajectories, whole_trees

CURVES = (
    *("reward/mean", "success", "group_collapse", "entropy", "agreement"),  # per round
    *("critic/agreement", "logp_difference/mean"),
    *("loss", "rewards/accuracies", "rewards/margins", "logps/chosen", "logps/rejected"),  # per optimiser step
    *("grad_norm", "kl", "approx_kl", "clip_ratio/low_mean", "clip_ratio/high_mean"),
)
BROKEN = "broken by the world"  # episodes, and rollouts of trees, by error kind
RESTORED = "restored pages"  # nodes of trees, by outcome, see `Env.restored`


@dataclass(frozen=True, slots=True)
class StageRow:
    """One stage: items kept, seconds, and the rest of its note."""

    name: str
    trees: int
    trajectories: int
    seconds: float | None
    note: str


def write_report(run_dir: Path | str, out: Path | None = None, *, status: StageDisplay | None = None) -> Path:
    """Write the page of a run, even of one in progress. Returns its path.

    What of trees, episodes, notes, env.json and metrics.jsonl is damaged is left out, which the page and `status` say.

    Args:
        out: the page's file; None: `report.html` in the run directory.
        status: shows how many trees and episodes are read; None: nothing is shown.

    Raises:
        StoreError: if `run_dir` is no run directory, another of its files is damaged, or the page cannot be written.
    """
    path, lost = Path(run_dir), list[str]()
    own, out = out is None, out or path / "report.html"
    remedy = ": choose another by agentq report RUN --out FILE"
    rungs = read_summary(path / "summary.json")
    with RunStore.read(path) as store:
        check_page(out, remedy, follow=not own)
        total = sum(store.count(stage, kind) for stage in store.stages() for kind in (TREE, TRAJECTORY))
        show = status.stage("report", total, "items") if status is not None else None
        # a run that goes on has more items by the time they are read
        stages, examples, lengths = read_stages(store, lost, lambda done: show and done <= total and show(done, ""))
        live = whole_note(store, "result", lost).get("live")
        file = path / "env.json"
        environment: dict[str, Any] = or_empty(lambda: read_object(file), {}, lost) if file.exists() else {}
        metrics: list[dict[str, Any]] = or_empty(lambda: read_metrics(path / "metrics.jsonl", lost), [], lost)
        page = _template().render(
            name=path.resolve().name,
            config=store.config,
            settings=list(flatten(store.config)),
            environment=environment,
            rungs=rungs,
            prompts=first_prompts(rungs),
            compared=compare.within(store) if rungs else None,
            live=live,
            paid=any(rung.money for rung in rungs),
            broken=any(rung.broken for rung in rungs),
            bars=success_bars(rungs) if rungs else "",
            stages=stages,
            lost=left_out(lost),
            lengths=[histogram(stage, found) for stage, found in lengths.items()],
            curves=curves(metrics),
            examples=examples,
        )
    if lost and status is not None:
        status.say(left_out(lost))
    write_page(out, page.encode(errors="replace"), remedy, follow=not own)
    return out


def read_stages(
    store: RunStore, lost: list[str], seen: Callable[[int], object] = lambda done: None
) -> tuple[list[StageRow], list[Example], dict[str, list[int]]]:
    """One row per stage, in the order of the run; the trees to show; tokens of the policy's prompts, by stage.

    Reads each tree and each episode once. `lost` gets a message per damaged one. `seen` is told how many are read.
    """
    rows, examples, lengths, numbers = [], Examples(), dict[str, list[int]](), itertools.count(1)
    for stage in store.stages():
        note, trees, episodes = whole_note(store, stage, lost), store.count(stage, TREE), store.count(stage, TRAJECTORY)
        if "seconds" not in note and not trees and not episodes:
            continue  # an internal mark of the run
        seconds, done, total, _ = (note.pop(key, None) for key in ("seconds", "done", "total", "finished"))
        text = [f"{done} of {total}"] if done != total and total else []
        for key in (
            "live",
            "pairs",
            "checkpoints",
            "state",
            "measured",
            "rounds",
        ):  # the first two are shown elsewhere; the others are seals
            note.pop(key, None)
        text += used(Usage.from_note({key: note.pop(key, {}) for key in ("usage", "engine")}))
        text += [f"{key.replace('_', ' ')} {value}" for key, value in note.items()]
        faults: Counter[str] = Counter()
        messages: Counter[str] = Counter()
        restored: Counter[str] = Counter()
        prompts: list[int] = []
        for episode in whole_trajectories(store, stage, lost):
            seen(next(numbers))
            faults.update([episode.fault] if episode.fault is not None else [])
            messages.update(filter(None, [fault_message(episode)]))
            prompts += [len(step.proposal.prompt_ids) for step in episode.steps]
        for tree in whole_trees(store, stage, lost):
            seen(next(numbers))
            prompts += prompt_lengths(tree)
            faults.update(tree.info.get("faults", {}))
            messages.update(filter(None, [fault_message(tree)]))
            restored.update(how for how in tree.restored if how)
            examples.see(stage, tree)
        text += [f"{what}: {by_count(found)}" for what, found in ((BROKEN, faults), (RESTORED, restored)) if found]
        text += [f"most often: {one_line(message)}" for message, _ in messages.most_common(1)]
        rows.append(StageRow(stage, trees, episodes, seconds, "; ".join(text)))
        if found := [length for length in prompts if length]:  # a server may not tell
            lengths[stage] = found
    return rows, examples.picked(), lengths


def prompt_lengths(tree: TreeRecord) -> list[int]:
    """Tokens of the prompt at each node with proposals; siblings were sampled from one prompt."""
    proposals = {int(parent): proposal for parent, proposal in zip(tree.parent, tree.proposal, strict=True)}
    return [len(proposal.prompt_ids) for proposal in proposals.values() if proposal is not None]


def used(usage: Usage) -> list[str]:
    """Usage of a stage's engines by role, their busy time, and failed attempts, commonest first."""
    text = [_asked(role, tally) for role, tally in usage.roles.items()]
    if usage.seconds:
        text.append(f"engine busy {duration(usage.seconds)}")
    if usage.faults:
        kinds = ", ".join(f"{n} {kind}" for kind, n in usage.faults.most_common())
        text.append(f"{usage.faults.total()} failed attempts ({kinds}), {duration(usage.pause_s)} of pauses")
    return text


def _asked(role: str, t: Tally) -> str:
    cached = t.cached_tokens / max(1, t.prompt_tokens)
    asked = f"{count(t.requests)} requests, {count(t.prompt_tokens)} prompt tokens ({cached:.0%} cached)"
    queued_ms = 1000 * t.queue_s / max(1, t.requests)
    short = f", {t.shortened} prompts shortened (no room in the context)" if t.shortened else ""
    return f"{role}: {asked}, {count(t.generated_tokens)} generated, queued {queued_ms:.0f} ms each{short}"


def curves(metrics: Sequence[dict[str, Any]]) -> list[tuple[str, list[Markup]]]:
    """(stage, its plots) for every stage that logged one of `CURVES`."""
    stages: dict[str, list[dict[str, Any]]] = {}
    for row in metrics:
        stages.setdefault(row["stage"], []).append(row)
    found = []
    for stage, rows in stages.items():
        series = [(name, finite_points(rows, name)) for name in CURVES]
        plots = [line_plot(name, points) for name, points in series if points]
        if plots:
            found.append((stage, plots))
    return found


def duration(seconds: float | None) -> str:
    """`3 h 05 min`, `4 min 10 s`, `2.5 s`; empty if unknown."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min {rest:02d} s"


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["duration"] = duration
    environment.filters["count"] = count
    environment.filters["by_count"] = by_count
    return environment.get_template("report.html")
