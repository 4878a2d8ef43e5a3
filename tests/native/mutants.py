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
PARTS = (
    "",
    "_draws",
    "_states",
    "_threads",
    "_refusals",
    "_tickets",
    "_pairs",
    "_damage",
    "_snapshot",
    "_files",
    "_oracle",
)  # the slow ones last
TESTS = [f"test_forest{part}.py" for part in PARTS]

LINES = [  # file, what stands there, what is put there
    ("score.h", "1.0 / std::sqrt(1.0 + static_cast<double>(n))", "1.0 / std::sqrt(static_cast<double>(n > 0 ? n : 1))"),
    ("score.h", "std::log(static_cast<double>(n > 0 ? n : 1))", "std::log(1.0 + static_cast<double>(n))"),
    ("score.h", "table.edge(n > 0 ? n - 1 : 0).spread", "table.edge(n).spread"),
    ("score.h", "table.edge(std::uint64_t{n} + 1).reciprocal", "table.edge(n).reciprocal"),
    ("score.h", "node_visits > 0 ? node_visits : 1));", "node_visits));"),
    ("select.cc", "second = lesser > second ? lesser : second;", ""),
    ("select.cc", "edge.started >= fewest ||", ""),
    ("select.cc", "score > best_score ? child : best", "score >= best_score ? child : best"),
    ("select.cc", "if (kSkips && link::is_exhausted(edge.link)) continue;", ""),
    ("select.cc", "node.started - 1 - header(block).here", "node.started - header(block).here"),
    ("rollouts.cc", "value *= discount;", ""),
    ("rollouts.cc", "sum = joined(backup, sum, value);", "sum = backup == Backup::kMax ? value : sum + value;"),
    ("forest.h", "? std::max(w, more) : w + more", "? more : w + more"),
    ("select.cc", "config_.alpha * value + (1.0 - config_.alpha)", "value + (1.0 - config_.alpha)"),
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
    ("memory.cc", "(used_cells_ + cells) * bytes_per_cell() > config_.max_bytes", "false"),
    ("memory.cc", "std::fill_n(column->as<float>(), top_, 0.0f);", ""),
    ("memory.cc", "used_cells_ -= cells;", ""),
    ("memory.cc", "if (log2 >= kGiveBack) {", "if (false) {"),
    ("structure.cc", "reopen(node);", ""),
    ("select.cc", "tree.stamp == asks_", "false"),
    ("structure.cc", "num_nodes_ -= cut.size() - 1;", ""),
    ("pairs.cc", "if (visits < query.min_visits) return;", ""),
    ("pairs.cc", "gap(row, to) > 0 && gap(row, to) >= threshold", "gap(row, to) > threshold"),
    ("pairs.cc", "while (!pairs.empty() && pairs.back().gap == least) pairs.pop_back();", "pairs.pop_back();"),
    ("pairs.cc", "if (column > first_[row]) rows.push", "if (column > row + 1) rows.push"),
    ("pairs.cc", "by_value_[a].id < by_value_[b].id", "a < b"),
    ("pairs.cc", "std::nth_element(rejected", "if (false) std::nth_element(rejected"),
    ("pairs.cc", "> kMaxPairs - out.node.size())", "> kMaxPairs)"),
    ("pairs.cc", "if (!std::isnan(value)) candidates", "candidates"),
    ("pairs.cc", "if (a.gap != b.gap) return a.gap > b.gap;", ""),
    ("pairs.cc", "slot(child).started - count_of(counts, child)", "slot(child).started"),
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
    ("sampled.cc", "recommended ? here.most :", ""),
    ("sampled.cc", "here.visits - std::min<std::uint64_t>(tree.base, here.visits)", "here.visits"),
    ("sampled.cc", "~std::uint64_t{tree.reroots}", "~std::uint64_t{0}"),
    ("sampled.cc", "deeper.add(wider, -1.0);", ""),
    ("sampled.cc", "discount * discount * seen.squares", "discount * seen.squares"),
    ("sampled.cc", "|| link::is_exhausted(slot(child).link)) return;\n      const", ") return;\n      const"),
    ("sampled.cc", "if (pending != 0 && (!is_thompson()", "if (false && (!is_thompson()"),
    ("sampled.cc", "++header(link::block(here.link)).here;", ""),
    ("grow.cc", "reopen(nodes[i]);", ""),
    ("grow.cc", "if (!logps.empty()) check_length", "if (false) check_length"),
    ("grow.cc", "check_finite(\"priors\", priors);", ""),
    ("best_first.cc", "std::int32_t depth = -1;", "std::int32_t depth = 0;"),
    ("sampled.cc", "for (;; ++depth)", "for (;;)"),
    ("grow.cc", "lay_slot(child, head.width++);", "lay_slot(child, 0), ++head.width;"),
    ("grow.cc", "lay_block(block, node, header(first).index, 1, more);", "lay_block(block, node, 0, 1, more);"),
    ("rollouts.cc", "is_thompson() || !all_exhausted", "!all_exhausted"),
    ("rollouts.cc", "squares_->as<double>()[node] += value * value;", "squares_->as<double>()[node] += value;"),
    ("states.cc", "state->started += more;", "{}"),
    ("states.cc", "if (keys[i] != key)", "if (false)"),
    ("states.cc", "return e.b == kNoNode && state_of", "return state_of"),
    ("states.cc", "here += link::is_leaf(word) ? slot(old).started :", "here += link::is_leaf(word) ? 0 :"),
    ("states.cc", "if (state_) states_of(id).list.resize(states_before);", ""),
    ("states.cc", "all_exhausted(link::block(word)))\n", "false)\n"),
    ("states.cc", "++tree.reroots;", ""),
    ("states.cc", "if (state != 0) continue;", ""),
    ("structure.cc", "block(here.link)).here - count_of(at_node, node)", "block(here.link)).here"),
    ("snapshot.h", "lanes_[lane] = stirred(lanes_[lane] ^ word);", "lanes_[lane] ^= word;"),
    ("snapshot.cc", "if (left_.size() < size) damaged", "if (false) damaged"),
    ("snapshot.cc", "if (is_unfinished(bytes)) return false;", ""),
    ("snapshot.cc", "left - sizeof(std::uint64_t) > head.length)\n", "false)\n"),
    ("snapshot.cc", "s.selection > 6 ||", ""),
    ("snapshot.cc", "s.unvisited > 1 ||", ""),
    ("snapshot.cc", "s.exhaust > 1 ||", ""),
    ("snapshot.cc", " || s.backup > 1 ||", " ||"),
    ("snapshot.cc", "|| s.transpositions > 1)", ")"),
    ("snapshot.cc", "if (journal_.columns_ != settings.columns)", "if (false)"),
    ("snapshot.cc", "if (head.checksum != head.sum())", "if (false)"),
    ("snapshot.cc", "head.magic != kSnapshotMagic ||", ""),
    ("snapshot.cc", "head.number != journal_.records_ ||", ""),
    ("snapshot.cc", " || head.before != journal_.seal_", ""),
    ("snapshot.cc", "if (Checksum(head.checksum).add(part).value() !=", "if (0 && Checksum().add(part).value() !="),
    ("snapshot.cc", "std::min(bytes.size(), kSnapshotMagic.size())) != 0)", "0) != 0)"),
    ("snapshot.cc", "left - sizeof(std::uint64_t) < head.length) return false;", "false) return false;"),
    ("snapshot.cc", "if (contents.cells > forest_.config_.max_bytes / sizeof(Cell))", "if (false)"),
    ("snapshot.cc", "if (tree > bodies_.size())", "if (false)"),
    ("snapshot.cc", "if (contents.trees != bodies_.size() ||", "if ("),
    ("snapshot.cc", "if (page > contents.cells / kPageCells)", "if (false)"),
    ("snapshot.cc", "if (!in.left().empty()) damaged(\"record", "if (false) damaged(\"record"),
    ("snapshot.cc", "if (entry.root == kNoNode || entry.chunks < 1 ||", "if (entry.root == kNoNode ||"),
    ("snapshot.cc", "if (entry.root == kNoNode || entry.chunks < 1 ||", "if (entry.chunks < 1 ||"),
    ("snapshot.cc", "in.left().size() != size ||", ""),
    ("snapshot.cc", "entry.next_size < Forest::kFirstChunk ||", ""),
    ("snapshot.cc", " || entry.next_size > Forest::kLargestChunk", ""),
    ("snapshot.cc", "if (chunk.log2 < Forest::kFirstChunk ||", "if ("),
    ("snapshot.cc", "chunk.log2 > Validator::kLargest ||", ""),
    ("snapshot.cc", "chunk.cell % 32 != 0 ||", ""),
    ("snapshot.cc", "(chunk.cell + size) * sizeof(Cell) > f.config_.max_bytes)", "false)"),
    ("snapshot.cc", "if (entry.used < 2 ||", "if ("),
    ("snapshot.cc", "entry.used > size ||", ""),
    ("snapshot.cc", " || entry.used % 2 != 0)", ")"),
    ("snapshot.cc", "if (f.bytes_in_use() > f.config_.max_bytes)", "if (false)"),
    ("snapshot.cc", "if (used_[i].cell < used_[i - 1].end)", "if (false)"),
    ("snapshot.cc", "(at + 1 != pages_.end() && at[1].number == at->number)", "false"),
    ("snapshot.cc", "at == pages_.end() || at->number != number ||", ""),
    ("snapshot.cc", "number * kPageCells + at->cells < std::min(chunk.used, (number + 1) * kPageCells)", "false"),
    ("snapshot.cc", "free_gaps();\n    if", "if"),
    ("validate.cc", "mark(chunk.cell + 2, chunk.used, true);", "mark(chunk.cell, chunk.used, true);"),
    ("validate.cc", "mark(chunk.cell + 2, chunk.used, true);", "mark(chunk.cell + 2, chunk.end, true);"),
    ("validate.cc", "mark(chunk.cell + 2, chunk.used, false);", "{}"),
    ("snapshot.cc", "if (states.find_or_add(key, value_sum) != i)", "states.find_or_add(key, value_sum); if (false)"),
    ("validate.cc", "state > states_.size())", "false)"),
    ("validate.cc", "through_[i] > states_[i].started ||", ""),
    ("validate.cc", "(states_[i].started == 0 && states_[i].value_sum != f_.nothing())", "false"),
    ("validate.cc", "if (f_.successes_ && f_.successes_->as<std::uint32_t>()[node] > s.started)", "if (false)"),
    ("select.cc", "if (state_) count_states(batch.trees[row], node, 1);", ""),
    ("rollouts.cc", "if (state_) count_states(rollouts_[index].tree, at, -1u);", ""),
    ("rollouts.cc", "% crew_->size() == k)", "% crew_->size() >= k)"),
    ("validate.cc", "if (head.parent != kNoNode ||", "if ("),
    ("validate.cc", "head.here != static_cast<std::uint32_t>(id) ||", ""),
    ("validate.cc", "head.next != 0 || head.width != 1", "head.width != 1"),
    ("validate.cc", "head.width != 1 ||", ""),
    ("validate.cc", " || head.index != 0)", ")"),
    ("validate.cc", "tree.base > f_.slot(tree.root).started ||", ""),
    ("validate.cc", " || (tree.reroots == 0 && tree.base != 0))", ")"),
    ("validate.cc", "f_.num_nodes_ += nodes_;", ""),
    ("validate.cc", "if (through != f_.slot(above).started)", "if (false)"),
    ("validate.cc", "f_.config_.exhaust && !f_.is_thompson()", "f_.config_.exhaust"),
    ("validate.cc", "(may_be && all_exhausted))", "(all_exhausted))"),
    ("validate.cc", "!= (may_be && all_exhausted)) damaged", "< 0) damaged"),
    ("validate.cc", "told_here(above, f_.config_.discount * below);", "{}"),
    ("validate.cc", "if ((s.link & link::kPending) != 0)", "if (false)"),
    ("validate.cc", "if ((s.link & link::kIndex) != index)", "if (false)"),
    ("validate.cc", "(!f_.config_.exhaust || (s.link & link::kTerminal) == 0", "((s.link & link::kTerminal) == 0"),
    ("validate.cc", "(s.link & link::kTerminal) == 0)", "false)"),
    ("validate.cc", "if (s.started == 0 && s.value_sum", "if (false && s.value_sum"),
    ("validate.cc", "(is_max ? kNothing : 0.0)", "0.0"),
    ("validate.cc", "(is_max || s.started == 1)", "is_max"),
    ("validate.cc", "(is_max || s.started == 1)", "(s.started == 1)"),
    ("validate.cc", "(is_max || s.started == 1) && !", "!"),
    ("validate.cc", "is_beta && !(s.value_sum >= 0 &&", "is_beta && !("),
    ("validate.cc", " && s.value_sum <= s.started)", ")"),
    ("validate.cc", "{f_.critic_, f_.prior_}", "{f_.critic_}"),
    ("validate.cc", "{f_.critic_, f_.prior_}", "{f_.prior_}"),
    ("validate.cc", "!(squares >= 0) ||", ""),
    ("validate.cc", "!(squares >= 0) ||", "squares < 0 ||"),
    ("validate.cc", " || (s.started == 0 && squares != 0))", ")"),
    ("validate.cc", "!(told >= -slack &&", "!("),
    ("validate.cc", " && told <= here + slack)", ")"),
    ("validate.cc", "head.parent != node ||", ""),
    ("validate.cc", "head.index != index ||", ""),
    ("validate.cc", " || head.width < 1)", ")"),
    ("validate.cc", "(head.width > room ||", "("),
    ("validate.cc", "(room != 1 && room != width)", "false"),
    ("validate.cc", "if (head.next != 0 && head.width != room)", "if (false)"),
    ("validate.cc", "if (width > kMaxWidth)", "if (false)"),
    ("validate.cc", "if (room > 1) claim(block + 2, cells_of(room) - 2);", ""),
    ("validate.cc", "claim(block, 2);  //", "//"),
    ("validate.cc", "if (block % 2 != 0 ||", "if ("),
    ("validate.cc", " || block >= f_.top_)", ")"),
    ("validate.cc", "mark(block, block + cells, false);", ""),
    ("journal.cc", "cell.slot.started -= next->count;", ""),
    ("journal.cc", "cell.header.here -= next->count;", ""),
    ("journal.cc", "cell.slot.link &= ~link::kPending;", "{}"),
    ("journal.cc", "&& columns_ == forest.columns_there();", ";"),
    ("journal.cc", "mark->page == page && mark->hash == hash_of", "mark->hash == hash_of"),
    ("journal.cc", "size_ + kAround + changes > 2 * (kAround + everything)", "false"),
    ("journal.cc", "(tree < trees_.size() && trees_[tree] == hash_of(entry))", "tree < trees_.size()"),
    ("journal.cc", "back <= kMaxWidth / 128 + 1", "back < 1"),
    ("journal.cc", "NodeId end = std::min(block + 1 + f_.header(block).width, end_)", "NodeId end = end_"),
    ("journal.cc", "out_.assign(bytes_of(page), '\\0');", "out_.resize(bytes_of(page));"),
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
