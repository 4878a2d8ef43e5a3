"""One-line faults in csrc/: each is built in a copy of the sources, and the forest's tests must fail on it.

    python tests/native/mutants.py [--only TEXT] [--json]

The tests run against a core built from the copy; a fault that no test notices ends the program with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = [
    f"test_forest{part}.py" for part in ("", "_draws", "_oracle", "_refusals", "_snapshot", "_states")
]

FAULTS = [  # file, what stands there, what is put there
    ("score.h", "1.0 / std::sqrt(1.0 + static_cast<double>(n))", "1.0 / std::sqrt(static_cast<double>(n > 0 ? n : 1))"),
    ("score.h", "std::log(static_cast<double>(n > 0 ? n : 1))", "std::log(1.0 + static_cast<double>(n))"),
    ("score.h", "table.edge(n > 0 ? n - 1 : 0).spread", "table.edge(n).spread"),
    ("score.h", "table.edge(std::uint64_t{n} + 1).reciprocal", "table.edge(n).reciprocal"),
    ("score.h", "node_visits > 0 ? node_visits : 1));", "node_visits));"),
    ("select.cc", "tied |= score == best_score;", ""),
    ("select.cc", "edge.started >= fewest ||", ""),
    ("select.cc", "score > best_score ? child : best", "score >= best_score ? child : best"),
    ("select.cc", "if (link::is_exhausted(edge.link)) continue;\n    if ((node", "if ((node"),
    ("select.cc", "here.started - 1 - header(block).here", "here.started - header(block).here"),
    ("select.cc", "here->started - 1 - header(block).here", "here->started - 1"),
    ("rollouts.cc", "value *= discount)", "value += 0.0)"),
    ("rollouts.cc", "is_max ? std::max(sum, value) : sum + value", "is_max ? value : sum + value"),
    ("select.cc", "config_.alpha * value + (1.0 - config_.alpha)", "value + (1.0 - config_.alpha)"),
    ("rollouts.cc", "|| rollouts_[index].generation != generation)", ")"),
    ("rollouts.cc", "while (done-- > 0) --rollouts_", "while (false) --rollouts_"),
    ("select.cc", "if ((leaf.link & link::kPending) != 0) {", "if (false) {"),
    ("select.cc", "unstart(lane.node);", ""),
    ("rollouts.cc", "++header(link::block(edge.link)).here;", ""),
    ("rollouts.cc", "      --header(block).here;\n      rollout.node", "      rollout.node"),
    ("rollouts.cc", "!link::is_leaf(word)) --header(link::block(word)).here;", "!link::is_leaf(word)) {}"),
    ("rollouts.cc", "node == kNoNode || !all_exhausted(block)", "node == kNoNode"),
    ("rollouts.cc", "if (config_.exhaust && (slot(leaf)", "if ((slot(leaf)"),
    ("memory.cc", "(used_cells_ + cells) * bytes_per_cell() > config_.max_bytes", "false"),
    ("memory.cc", "std::fill_n(column->as<float>(), top_, 0.0f);", ""),
    ("memory.cc", "used_cells_ -= cells;", ""),
    ("memory.cc", "if (log2 >= kGiveBack) {", "if (false) {"),
    ("structure.cc", "slot(above).link &= ~link::kExhausted;", "{}"),
    ("select.cc", "tree.stamp == asks_", "false"),
    ("structure.cc", "block >> 1 | (word & link::kExhausted)", "block >> 1"),
    ("structure.cc", "num_nodes_ -= cut.size() - 1;", ""),
    ("pairs.cc", "if (visits < query.min_visits) continue;", ""),
    ("pairs.cc", "gap > 0 && gap >= query.threshold", "gap > query.threshold"),
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
    ("sampled.cc", "|| link::is_exhausted(slot(child).link)) return;\n      const double value", ") return;\n      const double value"),
    ("sampled.cc", "if (pending != 0 && (!is_thompson()", "if (false && (!is_thompson()"),
    ("sampled.cc", "++header(link::block(here.link)).here;", ""),
    ("rollouts.cc", "reopen(nodes[i]);", ""),
    ("rollouts.cc", "lay_slot(child, head.width++);", "lay_slot(child, 0), ++head.width;"),
    ("rollouts.cc", "lay_block(block, node, header(first).index, 1, more);", "lay_block(block, node, 0, 1, more);"),
    ("rollouts.cc", "is_thompson() || !all_exhausted", "!all_exhausted"),
    ("rollouts.cc", "squares_->as<double>()[node] += value * value;", "squares_->as<double>()[node] += value;"),
    ("states.cc", "list[state - 1].started += more;", "{}"),
    ("states.cc", "if (keys[i] != key)", "if (false)"),
    ("states.cc", "return e.b == kNoNode && state_of", "return state_of"),
    ("states.cc", "here += link::is_leaf(word) ? slot(old).started :", "here += link::is_leaf(word) ? 0 :"),
    ("states.cc", "if (state_) states_of(id).list.resize(states_before);", ""),
    ("states.cc", "all_exhausted(link::block(word)))\n", "false)\n"),
    ("states.cc", "++tree.reroots;", ""),
    ("states.cc", "if (state != 0) continue;", ""),
    ("structure.cc", "header(link::block(here.link)).here - count_of(at_node, node)", "header(link::block(here.link)).here"),
    ("snapshot.cc", "if (sum != snapshot_checksum(bytes.first(body)))", "if (false)"),
    ("snapshot.cc", "out.put(s.started - count_of(counts, node))", "out.put(s.started)"),
    ("snapshot.cc", "through != f.slot(parent).started) damaged", "false) damaged"),
    ("snapshot.cc", "blocks[i].end() > blocks[i + 1].cell", "false"),
    ("snapshot.cc", "head.here - count_of(waiting, head.parent)", "head.here"),
    ("snapshot.cc", "if (!in_.empty())", "if (false)"),
]  # fmt: skip

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


def passes(core: Path) -> bool:
    """Do the forest's tests pass on a core? A crash or an endless loop is a failure."""
    tests = [str(ROOT / "tests" / name) for name in TESTS]
    try:
        done = subprocess.run([sys.executable, "-c", RUN, core, *tests], cwd=ROOT, capture_output=True, timeout=120)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="faults whose file or text holds this")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # cmake and ninja
    faults = [fault for fault in FAULTS if args.only in f"{fault[0]}: {fault[1]}"]
    survived = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "agentq"
        for name in ("csrc", "bindings"):
            shutil.copytree(ROOT / name, copy / name)
        text = (ROOT / "CMakeLists.txt").read_text()
        (copy / "CMakeLists.txt").write_text(text.replace("-Werror ", ""))  # a fault may leave a variable unused
        if not passes(build(copy)):
            raise SystemExit("the tests must pass on the sources as they are; they fail")
        for i, (name, old, new) in enumerate(faults, start=1):
            path = copy / "csrc" / name
            text = path.read_text()
            if text.count(old) != 1:
                raise SystemExit(f"a fault must stand once in {name}; got {text.count(old)} times: {old}")
            path.write_text(text.replace(old, new))
            killed = not passes(build(copy))
            path.write_text(text)
            print(f"{i}/{len(faults)} {'killed  ' if killed else 'SURVIVED'} {name}: {old.strip()}", file=sys.stderr)
            if not killed:
                survived.append(f"{name}: {old}")
    if args.json:
        print(json.dumps({"faults": len(faults), "survived": survived}))
    raise SystemExit(1 if survived else 0)


if __name__ == "__main__":
    main()
