"""`agentq run` on the terminal: its budget, progress, questions to the user, and results."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any

from agentq.critics.judge import Judgement
from agentq.envs.browser.env import BrowserEnv
from agentq.envs.browser.gate import COUNTS
from agentq.envs.browser.guard import FinalStep, Guard
from agentq.envs.browser.outgoing import visible
from agentq.envs.browser.pool import BrowserPool
from agentq.envs.browser.website import Website
from agentq.envs.mcp_world import McpSession
from agentq.errors import ConfigError
from agentq.live.given import Given, given_of
from agentq.live.models import Roles, loaded, names_of
from agentq.live.options import DRY_SECONDS, SECONDS, LiveOptions
from agentq.live.solve import Outcome, Solution, Watcher, commands_of, site_of, solve
from agentq.live.tools import solve_with_tools
from agentq.live.walk import walk
from agentq.output import print_json
from agentq.policies.budget import Budget
from agentq.policies.engine_names import check_checkpoint, check_vllm, path_in, read_name
from agentq.policies.usage import Price, Usage
from agentq.recipes.settings import Live
from agentq.report.page import used, write_report
from agentq.searching.selection import SearchSettings
from agentq.store.claim import check_claim, claimed, is_begun
from agentq.store.records import TreeRecord
from agentq.store.run import RunStore
from agentq.types import EnvAction, History, StepResult

DONE, OTHERWISE, INTERRUPTED = 0, 1, 130
_INTERRUPTED = "interrupted"
_SHOWN = 4  # number of last commands shown per rollout
_SAID = {
    Outcome.DONE: "done, the judge says",
    Outcome.WAITS: "one step waits for a yes: run it on a terminal, or with --yes",
    Outcome.LOST: "a step was allowed, and the site did not answer: it may have been carried out, look there",
    Outcome.GONE: "a page was not reached again as it was, or did not send again what it had sent",
    Outcome.NOT_FOUND: "not found",
}


def run(goal: str, args: LiveOptions, config: Live) -> int:
    """Solve the task. Progress goes to stderr, the result to stdout, and a report to the run directory.

    Returns:
        The exit code: 0 done, 1 not done, 130 interrupted.

    Raises:
        ConfigError: for a wrong option, or a run directory in use.
        MissingExtra, ModelError, EnvError: from the engine, the browser or the first page.
    """
    price = Price(*config.price.of_tokens())
    budget = _budget(args)
    if not goal.strip():
        raise ConfigError("GOAL must name a task; got an empty text")
    given = given_of(args)
    if args.url:
        site = site_of(
            args.url, args.allow, args.allow_request, args.block_request, storage=given.storage, uploads=args.uploads
        )
        if args.dry_run:
            return _dry_run(goal, args, site, budget, config.run.seed)
    if args.model is None:
        raise ConfigError("--model must name an engine; got none (only --dry-run needs no model)")
    out = args.out or Path("runs") / time.strftime("live-%Y%m%d-%H%M%S")
    if is_begun(out) and not args.clean:
        raise ConfigError(f"--out must be a new or empty directory, or --clean given; got {out}")
    s, seed = config.search, config.run.seed
    settings = SearchSettings(
        sys.maxsize, s.num_proposals, s.temperature, s.c_exp, seed=seed, selection=s.selection, alpha=s.alpha
    )
    told: dict[str, Any] = {"goal": goal, "url": args.url or args.mcp, "model": args.model, "yes": args.yes}
    told |= {"judge": config.judge.model or args.model}
    told |= {"allow_request": args.allow_request, "block_request": args.block_request}
    identity = {"command": "run", "live": told, "search": config.search.model_dump()}
    named = names_of(args.model, config)
    inputs = _inputs(args, named)
    check_vllm(dict(config.vllm), named.values())
    check_claim(out, identity, clean=args.clean, inputs=inputs)
    with loaded(named, config) as engines:
        roles = Roles(named, engines, config, budget, price, args.judge_sees)
        with claimed(out, identity, clean=args.clean, inputs=inputs) as store, _interruptible(budget):
            watcher = _Terminal(store, budget, yes=args.yes).watcher()
            solution = _solved(goal, args, given, roles, watcher, settings, marks=config.model.sees)
            usage = roles.usage
            money = price.of(usage.total)
            store.set_note("result", _note(solution, budget, usage, money))
        report = write_report(out)
    if args.json:
        more = {"usage": asdict(usage)["roles"], "ended": budget.ended, "report": str(report)}
        print_json(_json(solution, money) | more)
    else:
        print("\n".join([*_lines(solution, budget), *_used(usage, money), f"report: {report}"]))
    return DONE if solution.outcome is Outcome.DONE else INTERRUPTED if budget.ended == _INTERRUPTED else OTHERWISE


def _solved(
    goal: str, args: LiveOptions, given: Given, roles: Roles, watcher: Watcher, settings: SearchSettings, *, marks: bool
) -> Solution:
    """Solve the task on the site or with the tools of the server."""
    if args.mcp:
        with closing(McpSession(args.mcp)) as session:
            return solve_with_tools(
                *(goal, session, roles.policy, watcher, settings), critic=roles.critic, judge=roles.judge
            )
    with BrowserPool(sandbox=False if args.no_sandbox else None) as pool:
        return solve(
            *(goal, args.url, roles.policy, pool, watcher, settings),
            critic=roles.critic,
            judge=roles.judge,
            allow=args.allow,
            allow_requests=args.allow_request,
            block_requests=args.block_request,
            secrets=given.secrets,
            storage=given.storage,
            uploads=args.uploads,
            page_tokens=args.page_tokens,
            marks=marks,
        )


def _inputs(args: LiveOptions, engines: Mapping[str, str]) -> dict[str, Path | str]:
    """Inputs of the command by option. Raises ModelError if an engine's checkpoint is missing."""
    inputs: dict[str, Path | str] = {"--config": args.config} if args.config else {}
    for option, engine in engines.items():
        name = read_name(engine)
        check_checkpoint(name)
        inputs[option] = path_in(name) or name
    return inputs


def _dry_run(goal: str, args: LiveOptions, site: Website, budget: Budget, seed: int) -> int:
    """Walk until the budget is spent, and print the blocked requests as rules."""
    guard = Guard(args.allow_request, args.block_request)
    with BrowserPool(sandbox=False if args.no_sandbox else None) as pool, _interruptible(budget):
        env = BrowserEnv(site, pool, guard=guard)
        steps = walk(env, goal, budget, seed, _tell_step)
        env.close()
    tried, counts = guard.tried, dict(guard.counts)
    if args.json:
        print_json({"steps": steps, "requests": counts, "tried": dict(tried)})
        return DONE
    print(f"{steps} steps; {_counted(counts)}")
    print("\n".join(_rules(tried) or ["the site sent nothing that is held"]))
    return DONE


def _tell_step(action: EnvAction, result: StepResult) -> None:
    ended = f"held: {result.error_message}" if result.error_kind == "held" else result.error_kind or "ok"
    _tell(f"{visible(str(action))}; {ended}")


def _rules(tried: Mapping[str, int]) -> list[str]:
    """Options that would allow the blocked requests, most frequent first."""
    ordered = sorted(tried.items(), key=lambda item: (-item[1], item[0]))
    return [
        f"--allow-request {shlex.quote(visible(rule))}  # {count} time{'s' * (count != 1)}" for rule, count in ordered
    ]


def _counted(counts: Mapping[str, int]) -> str:
    """`requests: 3 held, 1 allowed by rule, 0 allowed by person, 1 sent`."""
    return "requests: " + ", ".join(f"{counts.get(name, 0)} {name.replace('_', ' ')}" for name in COUNTS)


def _budget(args: LiveOptions) -> Budget:
    seconds = args.seconds
    if min(args.calls, args.seconds, args.money) == inf:
        seconds = DRY_SECONDS if args.dry_run else SECONDS
    return Budget(calls=args.calls, seconds=seconds, money=args.money)


@contextmanager
def _interruptible(budget: Budget) -> Iterator[None]:
    """Ctrl-C ends the budget, so the search stops with its best result; a second Ctrl-C ends everything."""

    def stop(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        budget.ended = _INTERRUPTED
        _tell("stopping after this call; Ctrl-C again ends at once")

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _Terminal:
    """Reports rollouts on stderr, keeps trees, asks the user."""

    def __init__(self, store: RunStore, budget: Budget, *, yes: bool) -> None:
        self.store, self.budget, self.yes = store, budget, yes
        self.rollouts = self.trees = 0

    def watcher(self) -> Watcher:
        can_ask = self.yes or sys.stdin.isatty()
        return Watcher(self.allows if can_ask else None, self.on_rollout, self.on_tree)

    def on_rollout(self, history: History, result: StepResult, judgement: Judgement | None) -> None:
        self.rollouts += 1
        commands = commands_of(history.actions, history.language)
        shown = " > ".join(("...", *commands[-_SHOWN:]) if len(commands) > _SHOWN else commands)
        ended = result.error_kind or ("too many steps" if result.truncated else "")
        parts = [f"rollout {self.rollouts}: {shown}", ended, _verdict(judgement), _spent(self.budget)]
        _tell("; ".join(visible(part) for part in parts if part))

    def on_tree(self, tree: TreeRecord) -> None:
        self.trees += 1
        self.store.add_tree(f"search {self.trees}", tree)

    def allows(self, step: FinalStep) -> bool:
        """The user's answer; always yes with --yes."""
        _tell("\n".join(["This step may not be undone:", *step.lines()]))
        if self.yes:
            return True
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # Ctrl-C ends the question
        try:
            print("Send it? [y/N] ", end="", file=sys.stderr, flush=True)
            return sys.stdin.readline().strip().casefold() in ("y", "yes")
        except KeyboardInterrupt:
            self.budget.ended = _INTERRUPTED
            return False
        finally:
            signal.signal(signal.SIGINT, handler)


def _verdict(judgement: Judgement | None) -> str:
    if judgement is None:
        return ""
    holding = sum(holds for _, holds in judgement.findings)
    return f"judge: {holding} of {len(judgement.findings)}" if judgement.findings else "judge: no rubric"


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _spent(budget: Budget) -> str:
    """`14 of 200 calls, 35 s`; money if it is limited."""
    limits = {what: (used, most) for what, used, most in budget.spent()}
    shown = [f"{used:.4g} of {most:g} {what}" for what, (used, most) in limits.items() if most < inf]
    return ", ".join(shown)


def _rubric(solution: Solution) -> list[str]:
    return [f"{'yes' if holds else 'no'}: {visible(finding)}" for finding, holds in solution.findings]


def _lines(solution: Solution, budget: Budget) -> list[str]:
    """The result as lines for people."""
    lines = [_SAID[solution.outcome] + (f": {budget.ended}" if budget.ended else "")]
    lines += [f"  {visible(command)}" for command in solution.commands]
    lines += [f"judge, {line}" for line in _rubric(solution)]
    lines += [f"carried out: {step}" for step in solution.carried_out]
    if solution.waits is not None:
        lines += ["waits:", *solution.waits.lines()]
    lines.append(_counted(solution.counts))
    if solution.tried:
        lines += ["kept back:", *(f"  {line}" for line in _rules(solution.tried))]
    return lines


def _used(usage: Usage, money: float) -> list[str]:
    return [*used(usage), *([f"cost: {money:.4g}"] if money else [])]


def _note(solution: Solution, budget: Budget, usage: Usage, money: float) -> dict[str, Any]:
    """The result, for the report."""
    seconds = time.monotonic() - budget.begun
    result = _json(solution, money) | {"ended": budget.ended, "said": _SAID[solution.outcome]}
    return {"seconds": seconds, "usage": asdict(usage)["roles"], "live": result}


def _json(solution: Solution, money: float) -> dict[str, Any]:
    return {
        "outcome": solution.outcome,
        "commands": solution.commands,
        "judge": [{"finding": finding, "holds": holds} for finding, holds in solution.findings],
        "carried_out": [str(step) for step in solution.carried_out],
        "waits": str(solution.waits) if solution.waits else None,
        "sent": [step.sends.lines() for step in solution.carried_out],
        "requests": dict(solution.counts),
        "tried": dict(solution.tried),
        "cost": money,
    }
