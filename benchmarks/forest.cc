// The workload of forest.py without Python: evaluator and search in one program. Prints one line per repetition: CPU
// seconds and bytes in use. The first line also has, for each root, the number of its children and their counts.
//
//     forest_bench TREES SIMULATIONS WIDTH BATCH VARIED REPETITIONS
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <vector>

#include "csrc/forest.h"

namespace {

using agentq::Forest;
using agentq::NodeId;
using agentq::TreeId;

constexpr int kDepth = 10;
constexpr std::uint32_t kGolden = 0x9E3779B9u;

std::uint32_t mix(std::uint32_t h) {
  h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
  h = (h ^ (h >> 13)) * 0xC2B2AE35u;
  return h ^ (h >> 16);
}

double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// The caller's record of a node: its hash before mixing, and its depth.
struct Known {
  std::uint32_t seed, depth;
};

struct Work {
  int trees, simulations;
  std::uint32_t width;
  int batch;
  bool varied;  // 1 + hash % widest children, `width` on average

  std::uint32_t widest() const { return varied ? 2 * width - 1 : width; }
  std::uint32_t width_of(std::uint32_t hash) const { return varied ? 1 + hash % widest() : width; }
};

/// Evaluates the node of a ticket and gives it its children.
void simulate(Forest& forest, agentq::Ticket ticket, NodeId node, const Work& work, std::vector<Known>& known) {
  const auto [seed, depth] = known[node];
  const std::uint32_t hash = mix(seed);
  if (depth < kDepth) {
    const std::uint32_t width = work.width_of(hash);
    const NodeId first = *forest.expand_one(ticket, width);
    for (std::uint32_t i = 0; i < width; ++i) known[first + i] = {hash + (i + 1) * kGolden, depth + 1};
  }
  forest.tell_one(ticket, (hash >> 8) * 0x1p-24);
}

/// One leaf at a time for one tree and batches of 1, otherwise batches over all trees.
void search(Forest& forest, const std::vector<TreeId>& trees, const Work& work, std::vector<Known>& known) {
  for (const TreeId tree : trees) known[forest.root(tree)] = {1 + static_cast<std::uint32_t>(tree) * kGolden, 0};
  if (work.trees == 1 && work.batch == 1) {
    for (int i = 0; i < work.simulations; ++i) {
      const agentq::Leaf leaf = *forest.ask_one(trees[0]);
      simulate(forest, leaf.ticket, leaf.node, work, known);
    }
    return;
  }
  std::vector<int> left(trees.size(), work.simulations);
  const auto size = [&](TreeId tree) { return std::min(work.batch, left[static_cast<std::size_t>(tree)]); };
  std::vector<TreeId> open = trees, asked;
  while (!open.empty()) {
    const int batch = size(open[0]);
    asked.clear();
    std::ranges::copy_if(open, std::back_inserter(asked), [&](TreeId tree) { return size(tree) == batch; });
    const agentq::Leaves leaves = forest.ask(asked, static_cast<std::size_t>(batch));
    for (const NodeId node : leaves.node) __builtin_prefetch(&known[node], 1);
    for (std::size_t i = 0; i < leaves.ticket.size(); ++i) {
      simulate(forest, leaves.ticket[i], leaves.node[i], work, known);
      --left[static_cast<std::size_t>(leaves.tree[i])];
    }
    std::erase_if(open, [&](TreeId tree) { return size(tree) == 0; });
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7)
    return std::fprintf(stderr, "usage: forest_bench TREES SIMULATIONS WIDTH BATCH VARIED REPETITIONS\n"), 2;
  const Work work{std::atoi(argv[1]), std::atoi(argv[2]), static_cast<std::uint32_t>(std::atoi(argv[3])),
                  std::atoi(argv[4]), std::atoi(argv[5]) != 0};
  agentq::ForestConfig config;
  config.c_exp = std::sqrt(2.0);
  config.exhaust = false;
  std::vector<Known> known;
  for (int i = 0; i < std::atoi(argv[6]); ++i) {
    const double start = cpu_seconds();
    Forest forest(config);
    const std::vector<TreeId> trees = forest.add_trees(static_cast<std::size_t>(work.trees));
    const std::size_t block = (work.widest() + 2) / 2 * 2;
    known.resize(trees.size() * (256 + 4 * block * (static_cast<std::size_t>(work.simulations) + 1)));
    search(forest, trees, work, known);
    std::printf("%.9f %llu", cpu_seconds() - start, static_cast<unsigned long long>(forest.bytes_in_use()));
    if (i == 0)
      for (const TreeId tree : trees) {
        const std::vector<NodeId> children = forest.children(forest.root(tree));
        std::printf(" %zu", children.size());
        for (const NodeId child : children)
          std::printf(" %u", forest.cells()->as<agentq::Cell>()[child].slot.visits_started);
      }
    std::printf("\n");
  }
}
