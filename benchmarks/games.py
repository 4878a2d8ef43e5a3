"""Text games, trained on the expert's episodes and searched: held-out success greedily, and by search with the checker.

    python benchmarks/games.py {textworld,alfworld} [--base MODEL] [--seed N] [--report]

Needs `make textworld`. TextWorld's games are those of `textworld/3.5.3`. ALFWorld's are household tasks of our own
(worlds_alfworld.py), the last hundred of which are held out as `valid_seen`. SFT has a round of the expert's episodes
and two epochs. Search is pass@20: the game's checker tells it when it has succeeded. The same command resumes.
Outcomes of all tasks go to benchmarks/results, from which `benchmarks/results.py` makes the tables.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from machine import commit
from methods import INLINE, agentq, summary
from outcomes import Outcomes, base_words, keep, of_runs, titled
from worlds_textworld import PYTHON

from agentq.envs.remote.env_server import EnvServer
from agentq.policies.engine_names import embedded_base

HELD_OUT, SEARCHED = 100, 60  # tasks
MEASURED = {  # row and how it is measured: words of `agentq eval`
    ("sft", "greedy"): (f"--eval.num_tasks={HELD_OUT}",),
    ("sft", "oracle"): (f"--eval.num_tasks={SEARCHED}", "--search", "--critic.model=none"),
    ("base", "greedy"): (f"--eval.num_tasks={HELD_OUT}",),
}
LEARN = (
    *("--run.num_rounds=1", "--train.epochs=2", "--train.learning_rate=1e-3"),
    *("--eval.measure_base=false", "--eval.num_tasks=1"),
)
SESSIONS = 24  # of each server
TRAIN_AT, TEST_AT = "127.0.0.1:7007", "127.0.0.1:7008"


@dataclass(frozen=True, slots=True)
class Game:
    """`train` and `test`: what is served; `episodes` of the expert are shown."""

    train: str
    test: str
    episodes: int


GAMES = {
    "textworld": Game("textworld/3.5.3", "textworld/3.5.3", 360),
    "alfworld": Game("alfworld/train", "alfworld/valid_seen", 340),
}


def make_household(folder: Path, episodes: int) -> None:
    """Household games for training, and others that are held out."""
    games = folder / "json_2.1.1"
    if not (games / "valid_seen").exists():
        told = (str(PYTHON), str(Path(__file__).with_name("worlds_alfworld.py")), str(folder), str(episodes + HELD_OUT))
        subprocess.run(told, check=True)
        (games / "partial").mkdir(exist_ok=True)
        for game in sorted((games / "train").iterdir())[episodes:]:
            game.rename(games / "partial" / game.name)
        (games / "partial").rename(games / "valid_seen")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("game", choices=GAMES)
    parser.add_argument("--base", type=Path, metavar="MODEL", default=embedded_base(), help="where training starts")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("runs/games"), help="default: %(default)s")
    parser.add_argument("--report", action="store_true", help="run nothing; write the outcomes of finished runs")
    args = parser.parse_args()
    table, game = titled(f"games-{args.game}", args.base), GAMES[args.game]
    place = args.out / table / f"seed{args.seed}"
    common = ("--json", INLINE, "--search.num_trees_in_flight=16", f"--seed={args.seed}")
    if not args.report and (failed := run(game, args.base, args.out, place, common)):
        sys.exit(failed)
    command = " ".join(["python benchmarks/games.py", args.game, *base_words(args.base)])
    for row, how in MEASURED:
        path = place / f"{row}-{how}"
        found = summary(path)
        if found is not None:
            outcomes = Outcomes(
                table, game.test, row, how, args.seed, command, commit(), of_runs([path]), found.env_steps
            )
            keep(outcomes)
            print(f"{path.name}: {found.successes} of {found.n}, {100 * found.low:.1f} to {100 * found.high:.1f} %")


def run(game: Game, base: Path, out: Path, place: Path, common: tuple[str, ...]) -> int:
    """Train and measure what is missing; return the exit code of what failed, or 0."""
    if game.train.startswith("alfworld"):
        os.environ["ALFWORLD_DATA"] = str((out / "household").absolute())
        make_household(out / "household", game.episodes)
    with ExitStack() as servers:
        for what, at in ((game.train, TRAIN_AT), (game.test, TEST_AT)):
            servers.enter_context(EnvServer(what, str(PYTHON), at, SESSIONS))
        learnt, path = place / "sft" / "checkpoints" / "sft", place / "sft"
        told = (*LEARN, f"--run.num_tasks={game.episodes}", f"--env={game.train}@{TRAIN_AT}", f"--base={base}")
        if not summary(path) and (code := agentq(path, "train", "sft", *common, *told, f"--out={path}")):
            return code
        for (row, how), words in MEASURED.items():
            path = place / f"{row}-{how}"
            told = (str(base if row == "base" else learnt), f"--env={game.test}@{TEST_AT}", f"--out={path}")
            if not summary(path) and (code := agentq(path, "eval", *told, *common, *words)):
                return code
    return 0


if __name__ == "__main__":
    main()
