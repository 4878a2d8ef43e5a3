"""One-line faults in csrc/: each is built in a copy of the sources, and the forest's tests must fail on it.

    python -m tests.native.mutants [--only TEXT] [--json]

The tests run against a core built from the copy; a fault that no test notices ends the program with 1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.mutation import Fault, attempt, chosen

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("", "_draws", "_refusals", "_tickets", "_snapshot", "_oracle")  # the slow ones last
TESTS = [f"test_forest{part}.py" for part in PARTS]

LINES = [  # file, what stands there, what is put there
    ("score.h", "1.0 / std::sqrt(1.0 + static_cast<double>(n))", "1.0 / std::sqrt(static_cast<double>(n > 0 ? n : 1))"),
    ("score.h", "std::log(static_cast<double>(n > 0 ? n : 1))", "std::log(1.0 + static_cast<double>(n))"),
    ("score.h", "table.spread(n > 0 ? n - 1 : 0)", "table.spread(n)"),
    ("score.h", "table.reciprocal(std::uint64_t{n} + 1)", "table.reciprocal(n)"),
    ("score.h", "parent_visits > 0 ? parent_visits : 1));", "parent_visits));"),
    ("select.cc", "second = lesser > second ? lesser : second;", ""),
    ("select.cc", "edge.visits_started >= fewest ||", ""),
    ("select.cc", "score > best_score ? child : best", "score >= best_score ? child : best"),
    ("select.cc", "if (kSkips && link::is_exhausted(edge.link)) continue;", ""),
    ("select.cc", "two = one + 1 < kWidth ? one + 1 : one;", "two = one;"),
    ("select.cc", "scores[i] += Pair{adjustment(edges[one]), adjustment(edges[two])};", ""),
    ("select.cc", "here.visits_started - 1 - header(block).here", "here.visits_started - header(block).here"),
    ("lockstep.cc", "ranks[row] = index + forest_.children_before(block);", "ranks[row] = index;"),
    ("lockstep.cc", "if (width == 0 && f.config_.exhaust) f.mark_exhausted(leaf);", ""),
    ("lockstep.cc", "    here.link |= link::kTerminal;", ""),
    ("lockstep.cc", "    forest_.undo(node_[row]);", ""),
    ("select.cc", "node.visits_started - 1 - head.here", "node.visits_started - head.here"),
    ("forest.h", "|| rollouts_[index].ticket != ticket ||", "||"),
    ("forest.h", "ticket != ticket || ticket == ticket::kNone)", "ticket != ticket)"),
    ("rollouts.cc", "put_back(tickets.first(done));", ""),
    ("tickets.cc", "mixed(instance().runs + static_cast<std::uint64_t>(getpid()))", "instance().runs.load()"),
    ("tickets.cc", "++TicketNumbers::forks;", ""),
    ("tickets.cc", ".fetch_add(1, std::memory_order_relaxed)", ".load()"),
    ("select.cc", "if ((leaf.link & link::kPending) != 0) {", "if (false) {"),
    ("select.cc", "    unstart(node);\n    return;", "    return;"),
    ("rollouts.cc", "++header(link::block(edge.link)).here;", ""),
    ("rollouts.cc", "--header(link::block(slot(rollout.node).link)).here;", ""),
    ("rollouts.cc", "!link::is_leaf(word)) --header(link::block(word)).here;", "!link::is_leaf(word)) {}"),
    ("rollouts.cc", "|| !all_exhausted(link::block(slot(node).link))) return;", ") return;"),
    ("rollouts.cc", "if (config_.exhaust && (slot(leaf)", "if ((slot(leaf)"),
    ("memory.cc", "(used_cells_ + cells) * bytes_per_cell() > max_bytes_", "false"),
    ("memory.cc", "std::fill_n(column->as<float>(), top_, 0.0f);", ""),
    ("memory.cc", "used_cells_ -= cells;", ""),
    ("memory.cc", "if (log2 >= kGiveBack) {", "if (false) {"),
    ("ask.cc", "tree.stamp == asks_", "false"),
    ("draws.h", "d = a - 1.0 / 3.0", "d = a"),
    ("draws.h", "0.5 * x * x + d - d * v", "d - d * v"),
    ("draws.h", "return above * std::pow(uniform(), 1.0 / a);", "return above;"),
    ("sampled.cc", "const double kappa = 1.0 + seen.n,", "const double kappa = seen.n + 0.5,"),
    ("sampled.cc", "0.5 + seen.n - seen.sum)", "0.5 + seen.n)"),
    ("sampled.cc", "if (t < each * left) return visits + t / left;", "if (t < each * left) return visits;"),
    ("sampled.cc", "budget / (phases * left));", "budget / phases / left / 2);"),
    ("sampled.cc", "mix = own > 0 ? (v + n * q_here) / (1.0 + n) : q_here;", "mix = q_here;"),
    ("sampled.cc", "(50.0 + static_cast<double>(most))", "50.0"),
    ("sampled.cc", "static_cast<double>(n) / (1.0 + static_cast<double>(here.visits))", "0.0"),
    ("sampled.cc", "here.visits - std::min<std::uint64_t>(tree.base, here.visits)", "here.visits"),
    ("sampled.cc", "~std::uint64_t{tree.reroots}", "~std::uint64_t{0}"),
    ("sampled.cc", "deeper.add(wider, -1.0);", ""),
    ("sampled.cc", "|| link::is_exhausted(slot(child).link)) return;\n      const", ") return;\n      const"),
    ("sampled.cc", "if (pending != 0 && (!is_thompson()", "if (false && (!is_thompson()"),
    ("sampled.cc", "++header(link::block(here.link)).here;", ""),
    ("grow.cc", "reopen(nodes[i]);", ""),
    ("grow.cc", "check_finite(\"priors\", priors);", ""),
    ("best_first.cc", "std::int32_t depth = -1;", "std::int32_t depth = 0;"),
    ("sampled.cc", "for (;; ++depth)", "for (;;)"),
    ("grow.cc", "lay_slot(child, head.width++);", "lay_slot(child, 0), ++head.width;"),
    ("grow.cc", "lay_block(block, node, header(first).index, 1, more);", "lay_block(block, node, 0, 1, more);"),
    ("rollouts.cc", "is_thompson() || !all_exhausted", "!all_exhausted"),
    ("forest.h", "squares_->as<double>()[node] += value * value;", "squares_->as<double>()[node] += value;"),
    ("structure.cc", "++tree.reroots;", ""),
    ("structure.cc", "header(first).here);", "0);"),
    ("structure.cc", "| (slot(inner).link & link::kExhausted)", ""),
    ("structure.cc", "num_nodes_ -= tree.nodes;", ""),
    ("memory.cc", "std::vector<Entry>, std::greater<>> next;", "std::vector<Entry>> next;"),
    ("sampled.cc", "const double end = config_.exhaust ? best_end(child) : 0.0;", "const double end = 0.0;"),
    ("sampled.cc", "config_.exhaust ? best_end(child) : 0.0", "best_end(child)"),
    ("sampled.cc", "!link::is_exhausted(slot(child).link), visit_count", "false, visit_count"),
    ("sampled.cc", "if (visit_count == 0) return;", ""),
    ("sampled.cc", "s.visits_started - (s.link & link::kPending) / link::kPendingOne;", "s.visits_started;"),
    ("sampled.cc", "rank > best_rank) best", "rank >= best_rank) best"),
    ("snapshot.h", "sum = mixed(sum ^ word);", "sum = sum ^ word;"),
    ("snapshot.cc", "s.selection > static_cast<std::uint8_t>(Selection::kThompsonBeta) ||", ""),
    ("snapshot.cc", " || s.exhaust > 1)", ")"),
    ("snapshot.cc", "s.visits_started - count_of(flying, node)", "s.visits_started"),
    ("snapshot.cc", "if (!left_.empty())", "if (false)"),
    ("snapshot.cc", "if (head.version != kSnapshotVersion)", "if (false)"),
    ("snapshot.cc", "if (head.length != left_.size() ||", "if ("),
    ("snapshot.cc", "if (head.checksum != checksum_of(left_, head.trees))", "if (false)"),
    ("snapshot.cc", "above >= nodes.size() ||", ""),
    ("snapshot.cc", "width < 1 ||", ""),
    ("snapshot.cc", "if (!link::is_leaf(f.slot(nodes[above]).link))", "if (false)"),
    ("snapshot.cc", "f.config_.exhaust && !f.is_thompson() &&", "f.config_.exhaust &&"),
    ("snapshot.cc", "if (tree.nodes != entry.nodes)", "if (false)"),
    ("snapshot.cc", "(tree.reroots == 0 && tree.base != 0)", "false"),
    ("snapshot.cc", "if (f.is_best_first()) f.offer_all(id);", ""),
    ("snapshot.cc", "if ((node.link & (link::kTerminal | link::kExhausted)) != 0)", "if (false)"),
    ("snapshot.cc", "if (through > node.visits_started)", "if (false)"),
    ("snapshot.cc", "!(told >= -slack &&", "!("),
    ("snapshot.cc", " && told <= here + slack)", ")"),
    ("snapshot.cc", "e.value_sum != 0 ||", ""),
    ("snapshot.cc", "e.value_sum != 0 || e.square_sum != 0", "e.value_sum != 0"),
    ("snapshot.cc", "n == 1 && !std::isfinite", "!std::isfinite"),
    ("snapshot.cc", "!(e.value_sum >= 0 &&", "!("),
    ("snapshot.cc", "e.value_sum <= n)", "true)"),
    ("snapshot.cc", "!std::isfinite(e.critic_value) ||", ""),
    ("snapshot.cc", "!std::isfinite(e.prior) ||", ""),
    ("snapshot.cc", "!(e.square_sum >= 0)", "e.square_sum < 0"),
    ("snapshot.cc", "e.flags > (kTerminal | kExhausted) ||", ""),
    ("snapshot.cc", "(is_exhausted && !(is_terminal && f.config_.exhaust))", "false"),
    ("snapshot.cc", "is_terminal && f.config_.exhaust", "is_terminal"),
    ("snapshot.cc", "f.make_columns(std::span(&e.critic_value, 1), std::span(&e.prior, 1));", ""),
]  # fmt: skip
FAULTS = [Fault(*texts) for texts in LINES]

RUN = """
import importlib.util, sys
import agentq
spec = importlib.util.spec_from_file_location("agentq._core", sys.argv[1])
core = importlib.util.module_from_spec(spec)
spec.loader.exec_module(core)
sys.modules["agentq._core"] = core
import pytest
sys.exit(pytest.main(["-x", "-q", "--no-header", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""


def build(source: Path) -> Path:
    """The core of a copy of the sources."""
    out = source / "build"
    if not out.exists():
        pybind = subprocess.check_output([sys.executable, "-m", "pybind11", "--cmakedir"], text=True).strip()
        words = ["-G", "Ninja", f"-Dpybind11_DIR={pybind}", f"-DPython_EXECUTABLE={sys.executable}"]
        words.append("-DCMAKE_BUILD_TYPE=None")  # nothing is optimised: building is what takes the time
        subprocess.run(["cmake", "-S", source, "-B", out, *words], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", out, "--target", "_core"], check=True, stdout=subprocess.DEVNULL)
    return next(out.glob("_core*.so"))


def passes(core: Path, timeout: float | None = None) -> bool:
    """Do the forest's tests pass on a core? A crash or an endless loop is a failure."""
    tests = [str(ROOT / "tests" / name) for name in TESTS]
    try:
        done = subprocess.run([sys.executable, "-c", RUN, core, *tests], cwd=ROOT, capture_output=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


class Copy:
    """The sources of this process: each process changes and builds its own."""

    folder: Path  # of all copies
    path: Path
    timeout: float  # seconds for the tests on a fault


def source_of(file: str) -> str:
    return (ROOT / "csrc" / file).read_text()


def copy_sources() -> Path:
    """Copy the sources for this process and build them; returns the core."""
    Copy.path = Copy.folder / str(os.getpid())
    for name in ("csrc", "bindings"):
        shutil.copytree(ROOT / name, Copy.path / name)
    text = (ROOT / "CMakeLists.txt").read_text()
    (Copy.path / "CMakeLists.txt").write_text(text.replace("-Werror ", ""))  # a fault may leave a variable unused
    return build(Copy.path)


def prepare() -> None:
    """A copy of its own for one process of several."""
    os.environ["CMAKE_BUILD_PARALLEL_LEVEL"] = "1"
    copy_sources()


def is_killed(fault: Fault) -> bool:
    path = Copy.path / "csrc" / fault.place
    source = path.read_text()
    path.write_text(fault.within(source))
    killed = not passes(build(Copy.path), Copy.timeout)
    path.write_text(source)
    return killed


def main() -> None:
    faults, as_json = chosen(__doc__, FAULTS)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # cmake and ninja
    with tempfile.TemporaryDirectory() as folder:
        Copy.folder = Path(folder)
        core, begun = copy_sources(), time.monotonic()
        if not passes(core):
            raise SystemExit("the tests must pass on the sources as they are; they fail")
        Copy.timeout = 5 * (time.monotonic() - begun)
        attempt(faults, is_killed, as_json, prepare)


if __name__ == "__main__":
    main()
