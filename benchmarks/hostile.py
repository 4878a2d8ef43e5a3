"""Does a run over hostile pages go on, without a hang, an escape, a leftover process or an unexplained failure?

    python benchmarks/hostile.py --episodes 1000 [--json] [--browsers 2] [--deadline 3] [--seed 0]

An episode opens one of the pages of hostile_site.py, then walks at random for three steps. If a page asks the walker to
leave the site, it obeys half the time. Progress and the time left go to stderr.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hostile_site import NAMES, TASK, HostileHost, hostile_site
from machine import commit, machine, target

from agentq.envs.browser.env import BrowserEnv
from agentq.envs.browser.pool import BrowserPool
from agentq.envs.browser.states import StepLog
from agentq.envs.explore import random_action
from agentq.types import Command, EnvAction

ELSEWHERE = (
    "file:///etc/passwd",
    "javascript:for(;;){}",
    "data:text/html,x",
    "chrome://crash",
    "//evil.test/",
    "about:blank",
)
_ASKED = re.compile(r"GOTO (\S+)")


@dataclass
class Seen:
    """Results: error kinds by page, on opening it and on all steps; milliseconds per step; exceptions."""

    opened: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    kinds: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    ms: list[float] = field(default_factory=list)
    raised: list[str] = field(default_factory=list)
    unexplained: int = 0  # steps that lost a worker and do not say so
    rss_mb: list[float] = field(default_factory=list)  # after each round over all pages
    replaced: list[str] = field(default_factory=list)
    elsewhere_hits: int = 0
    leftover: list[str] = field(default_factory=list)


def choose(env: BrowserEnv, elsewhere: str, rng: random.Random) -> EnvAction | None:
    """The walker's next action."""
    asked = _ASKED.search(env.view.text())
    if asked and rng.random() < 0.5:
        return EnvAction(Command.GOTO, text=asked[1])
    if rng.random() < 0.2:
        return EnvAction(Command.GOTO, text=rng.choice([*ELSEWHERE, elsewhere, f"/{rng.choice(NAMES)}"]))
    if rng.random() < 0.1:
        return rng.choice(
            [None, EnvAction(Command.SCROLL, text="DOWN"), EnvAction(Command.CLICK, rng.randrange(1, 99))]
        )
    go = [i for i, control in enumerate(env.view.page.controls, 1) if control.name == "Go"]
    return EnvAction(Command.CLICK, go[0]) if go and rng.random() < 0.7 else random_action(env, TASK, rng)


def episode(env: BrowserEnv, pages: Sequence[str], steps: int, elsewhere: str, rng: random.Random, seen: Seen) -> None:
    """Open each of `pages` and take `steps` steps from there; each step counts for the page on which it was taken."""
    env.reset(TASK)
    for page in pages:
        for step in range(1 + steps):
            action = EnvAction(Command.GOTO, text=f"/{page}") if step == 0 else choose(env, elsewhere, rng)
            place = page if step == 0 else env.view.url.partition("?")[0].strip("/")
            result = env.step(action)
            kind = result.error_kind or "fine"
            log = next(log for log in reversed(env.log) if isinstance(log, StepLog))
            seen.kinds[place if place in NAMES else "other"][kind] += 1
            if step == 0:
                seen.opened[page][kind] += 1
            seen.ms.append(log.ms)
            seen.unexplained += kind == "browser_lost" and not log.lost
            if result.terminated or result.truncated:
                return


def walk(
    episodes: int,
    *,
    pages: int = 1,
    steps: int = 3,
    browsers: int = 1,
    deadline_s: float = 3.0,
    seed: int = 0,
    progress: bool = False,
) -> Seen:
    """`episodes` episodes over `pages` pages each, all pages in turn; in even rounds no step may be repeated."""
    seen, begun, done = Seen(), time.monotonic(), 0
    folder = tempfile.mkdtemp(prefix="agentq-hostile-")
    before, tempfile.tempdir = tempfile.tempdir, folder  # processes are known by it
    try:
        with (
            hostile_site() as (origin, elsewhere),
            BrowserPool(browsers, deadline_s=deadline_s, memory_mb=900) as pool,
            ThreadPoolExecutor(browsers) as threads,
        ):

            def run(number: int) -> None:
                nonlocal done
                first = number * pages
                env = BrowserEnv(HostileHost(origin, first // len(NAMES) % 2 == 1), pool)
                chosen = [NAMES[i % len(NAMES)] for i in range(first, first + pages)]
                try:
                    episode(env, chosen, steps, elsewhere.evil, random.Random(seed + number), seen)
                except Exception as error:
                    seen.raised.append(f"{', '.join(chosen)}: {type(error).__name__}: {error}")
                env.close()
                done += 1
                if done % len(NAMES) == 0:
                    seen.rss_mb.append(round(_rss_mb(), 1))
                if progress and (done % 20 == 0 or done == episodes):
                    left = (time.monotonic() - begun) / done * (episodes - done)
                    print(f"{done} of {episodes} episodes, {left / 60:.1f} minutes left", file=sys.stderr, flush=True)

            try:
                list(threads.map(run, range(episodes)))
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                raise
            seen.replaced, seen.elsewhere_hits = list(pool.replaced), elsewhere.hits
    finally:
        tempfile.tempdir = before
    seen.leftover = _processes(folder) + [path.name for path in Path(folder).iterdir()]
    with suppress(OSError):
        Path(folder).rmdir()
    return seen


def _rss_mb() -> float:
    """Memory of this process, in MiB."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


def _processes(folder: str) -> list[str]:
    """Command lines of the living processes whose environment names `folder`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if folder.encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_text().replace("\0", " "))
    return found


def figures(seen: Seen, episodes: int, seconds: float) -> dict[str, Any]:
    """The printed figures."""
    ms = sorted(seen.ms)
    why = Counter(re.sub(r"[\d.]+", "N", reason) for reason in seen.replaced)
    return {
        "episodes": episodes,
        "steps": len(ms),
        "seconds": round(seconds, 1),
        "episodes_per_s": round(episodes / seconds, 3),
        "step_ms": {"median": ms[len(ms) // 2], "p99": ms[len(ms) * 99 // 100], "longest": ms[-1]},
        "kinds": dict(sum(seen.kinds.values(), Counter()).most_common()),
        "kinds_by_page": {page: dict(kinds.most_common()) for page, kinds in sorted(seen.kinds.items())},
        "workers_replaced": dict(why.most_common()),
        "rss_mb_by_round": seen.rss_mb,
        "raised": seen.raised,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--browsers", type=int, default=2)
    parser.add_argument("--deadline", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    begun = time.monotonic()
    seen = walk(args.episodes, browsers=args.browsers, deadline_s=args.deadline, seed=args.seed, progress=True)
    found = figures(seen, args.episodes, time.monotonic() - begun)
    targets = {
        "connections elsewhere": target(seen.elsewhere_hits, 0, at_most=True),
        "exceptions": target(len(seen.raised), 0, at_most=True),
        "lost workers that no step names": target(seen.unexplained, 0, at_most=True),
        "processes and files left": target(len(seen.leftover), 0, at_most=True),
        "longest step, s": target(round(max(seen.ms) / 1000, 1), 60, at_most=True),
    }
    if args.json:
        print(json.dumps({"figures": found, "targets": targets, "machine": machine("playwright"), "commit": commit()}))
        return
    for page, kinds in found.pop("kinds_by_page").items():
        print(f"{page:18}", ", ".join(f"{kind} {n}" for kind, n in kinds.items()))
    for name, value in [*found.items(), *targets.items()]:
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
