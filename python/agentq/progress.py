"""The results of commands as text: tables, and lines about rates and checks. `status` shows the work."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentq.doctor import Diagnosis
from agentq.error_kinds import REPLAY_MISMATCH
from agentq.evaluation.stats import RungResult


def ladder_table(rows: list[RungResult]) -> Table:
    """Rungs as a table: success with n, 95 % interval and costs. The caption says what lies behind each rate."""
    below = "\n".join([*(line for row in rows for line in lines_about(row)), *first_prompts(rows)])
    title = "success on held-out tasks, 95 % intervals"
    table = Table(title=title, box=box.SIMPLE, padding=(0, 1, 0, 0), caption=below or None, caption_justify="left")
    paid = any(row.money for row in rows)
    for name in ("rung", "success", "interval", "n", "env steps", "tokens", "seconds", *(["cost"] if paid else [])):
        table.add_column(name, justify="left" if name == "rung" else "right", no_wrap=True)  # 79 wide at most
    for row in rows:
        table.add_row(
            row.name,
            f"{100 * row.rate:.1f} %",
            f"{100 * row.low:.1f} - {100 * row.high:.1f}",
            str(row.n),
            f"{row.env_steps:,}",
            f"{row.prompt_tokens + row.generated_tokens:,}",
            f"{row.seconds:.0f}",
            *([f"{row.money:.4g}"] if paid else []),
        )
    return table


def first_prompts(rows: Sequence[RungResult]) -> list[str]:
    """The hash of what the model read first, once if it is the same for all rungs; nothing where engines tell none."""
    found = {row.name: row.prompt for row in rows if row.prompt}
    if len({*found.values()}) > 1:
        return [f"first prompts differ: {', '.join(f'{name} {prompt}' for name, prompt in found.items())}"]
    return [f"first prompt {prompt}" for prompt in {*found.values()}]


def columns(rows: Sequence[Mapping[str, str]]) -> Table:
    """Rows with the same keys as a table."""
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    for name in rows[0]:
        table.add_column(name.replace("_", " "), no_wrap=True)
    for row in rows:
        table.add_row(*row.values())
    return table


def lines_about(row: RungResult) -> list[str]:
    """A rung's oracle, gain over the base, scenarios, unsolved tasks, errors of steps, mean return where it is not the
    success rate, and what the world broke."""
    lines = []
    if row.oracle:
        lines.append(f"oracle, pass@{row.oracle}: the site's checker told the search when it had succeeded")
    if (gain := row.against_base) is not None:
        low, high = 100 * gain["low"], 100 * gain["high"]
        lines.append(f"{100 * gain['diff']:+.1f} points over the base ({low:+.1f} to {high:+.1f})")
    if row.sgc is not None:
        low, high = 100 * row.sgc["low"], 100 * row.sgc["high"]
        lines.append(f"{row.sgc['successes']} of {row.sgc['n']} scenarios in all variants ({low:.1f} - {high:.1f} %)")
    if row.stops:
        lines.append(f"not solved: {by_count(row.stops)}")
    if row.errors:
        lines.append(f"errors of steps: {by_count(row.errors)}")
    if not 0 <= row.mean_return <= 1:
        lines.append(f"the mean return is {row.mean_return:g}; search and training expect returns in [0, 1]")
    elif not math.isclose(row.mean_return, row.rate, abs_tol=1e-9):
        lines.append(f"mean return {row.mean_return:.3f}")
    if 2 * (lost := row.errors.get(REPLAY_MISMATCH, 0)) > row.n:
        lines.append(f"{lost} times search could not go back to a page; agentq env check names what does not repeat")
    if row.broken:
        lines.append(f"{row.broken} of {row.n} tasks broken by the world, counted as not solved")
        if (rest := row.unbroken) is not None:
            percent = f"{100 * rest.rate:.1f} % ({100 * rest.low:.1f} - {100 * rest.high:.1f})"
            lines[-1] += f"; without them {percent} of {rest.n}"
    return [f"{row.name}: {line}" for line in lines]


def by_count(found: Mapping[str, int]) -> str:
    """`7 timeout, 2 held`: commonest first, then by name."""
    return ", ".join(f"{n} {kind}" for kind, n in sorted(found.items(), key=lambda each: (-each[1], each[0])))


def show_diagnosis(name: str, diagnosis: Diagnosis) -> None:
    """A line about one check of `agentq doctor`."""
    colour = {"ok": "green", "warn": "yellow", "fail": "bold red", "skipped": "dim"}[diagnosis.verdict]
    remedy = f"; {diagnosis.remedy}" if diagnosis.remedy else ""
    line = Text.assemble((f"{diagnosis.verdict:8}", colour), f"{name:18}{diagnosis.found}{remedy}")
    main_console().print(line, soft_wrap=True)


@contextlib.contextmanager
def until_interrupted() -> Iterator[None]:
    """A block after which Ctrl-C is waited for; it also ends the block, without an error."""
    with contextlib.suppress(KeyboardInterrupt):
        yield
        while True:  # a signal that comes just before a wait, or to another thread, is handled after it
            time.sleep(1)


def show_table(table: Table) -> None:
    """Print a table at its full width: a narrow terminal wraps its lines, and no figure is cut."""
    wide = Console(file=sys.stdout, width=10_000, markup=False)
    console = main_console()
    console.width = max(console.width, wide.measure(table).maximum)
    console.print(table, soft_wrap=True)


def main_console() -> Console:
    """Results go to stdout, progress to stderr. Brackets in names are text, not rich's markup."""
    return Console(file=sys.stdout, markup=False)
