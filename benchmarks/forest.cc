// The workload of forest.py without Python: evaluator and search in one program. Prints root counts and CPU time.
//
//     forest TREES SIMULATIONS WIDTH BATCH REPETITIONS
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
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

/// What the caller knows of a node: its hash before mixing, and its depth.
struct Known {
  std::uint32_t seed, depth;
};

struct Work {
  int trees, simulations;
  std::uint32_t width;
  int batch;
};

void remember(std::vector<Known>& known, NodeId first, std::uint32_t width, std::uint32_t hash, std::uint32_t depth) {
  for (std::uint32_t i = 0; i < width; ++i) known[first + i] = {hash + (i + 1) * kGolden, depth + 1};
}

/// One leaf at a time where that is all that is asked for, else batches over all trees.
void search(Forest& forest, const std::vector<TreeId>& trees, const Work& work, std::vector<Known>& known) {
  for (const TreeId tree : trees) known[forest.root(tree)] = {1 + static_cast<std::uint32_t>(tree) * kGolden, 0};
  if (work.trees == 1 && work.batch == 1) {
    for (int i = 0; i < work.simulations; ++i) {
      const auto [status, ticket, node] = forest.ask_one(trees[0]);
      const auto [seed, depth] = known[node];
      const std::uint32_t hash = mix(seed);
      if (depth < kDepth) remember(known, forest.expand_one(ticket, work.width), work.width, hash, depth);
      forest.tell_one(ticket, (hash >> 8) * 0x1p-24);
    }
    return;
  }
  std::vector<int> left(trees.size(), work.simulations);
  std::vector<TreeId> open = trees;
  while (!open.empty()) {
    const int batch = std::min(work.batch, left[static_cast<std::size_t>(open[0])]);
    const agentq::Leaves leaves = forest.ask(open, static_cast<std::size_t>(batch));
    for (const NodeId node : leaves.node) __builtin_prefetch(&known[node]);  // of large forests: no cache holds them
    for (std::size_t i = 0; i < leaves.ticket.size(); ++i) {
      const auto [seed, depth] = known[leaves.node[i]];
      const std::uint32_t hash = mix(seed);
      if (depth < kDepth) remember(known, forest.expand_one(leaves.ticket[i], work.width), work.width, hash, depth);
      forest.tell_one(leaves.ticket[i], (hash >> 8) * 0x1p-24);
      --left[static_cast<std::size_t>(leaves.tree[i])];
    }
    std::erase_if(open, [&](TreeId tree) { return left[static_cast<std::size_t>(tree)] <= 0; });
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return std::fprintf(stderr, "usage: forest TREES SIMULATIONS WIDTH BATCH REPETITIONS\n"), 2;
  const Work work{std::atoi(argv[1]), std::atoi(argv[2]), static_cast<std::uint32_t>(std::atoi(argv[3])),
                  std::atoi(argv[4])};
  agentq::ForestConfig config;
  config.c_exp = std::sqrt(2.0);
  config.exhaust = false;
  std::vector<Known> known;
  for (int i = 0; i < std::atoi(argv[5]); ++i) {
    const double start = cpu_seconds();
    Forest forest(config);
    const std::vector<TreeId> trees = forest.add_trees(static_cast<std::size_t>(work.trees));
    const std::size_t block = (work.width + 2) / 2 * 2;
    known.resize(static_cast<std::size_t>(work.trees) * (256 + 4 * block * (static_cast<std::size_t>(work.simulations) + 1)));
    search(forest, trees, work, known);
    std::printf("%.9f %llu", cpu_seconds() - start, static_cast<unsigned long long>(forest.bytes_in_use()));
    if (i == 0)
      for (const TreeId tree : trees) {
        const NodeId first = forest.children(forest.root(tree)).front();
        for (std::uint32_t k = 0; k < work.width; ++k)
          std::printf(" %u", forest.cells()->as<agentq::Cell>()[first + k].slot.started);
      }
    std::printf("\n");
  }
}
