// The workload of forest.py without Python: evaluator and search in one program. Prints one line per repetition: CPU
// seconds and bytes in use. The first line also has, for each root, the number of its children and their counts.
//
//     forest_bench TREES SIMULATIONS WIDTH BATCH VARIED REPETITIONS
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <span>
#include <vector>

#include "csrc/lockstep.h"

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

struct Work {
  int trees, simulations;
  std::uint32_t width;
  int batch;
  bool varied;  // 1 + hash % widest children, `width` on average

  std::uint32_t widest() const { return varied ? 2 * width - 1 : width; }
  std::uint32_t width_of(std::uint32_t hash) const { return varied ? 1 + hash % widest() : width; }
};

/// Searches all trees in lockstep. hashes[node]: the hash of an expanded node. A leaf's follows from its parent's.
void search(Forest& forest, const std::vector<TreeId>& trees, const Work& work, std::uint32_t* hashes) {
  agentq::Lockstep leaves(forest, trees, static_cast<std::uint32_t>(work.simulations), static_cast<std::size_t>(work.batch));
  std::vector<double> values(leaves.capacity());
  std::vector<std::uint32_t> widths(leaves.capacity());
  while (leaves.size() > 0) {
    const std::size_t size = leaves.size();
    for (std::size_t row = 0; row < size; ++row) {
      __builtin_prefetch(hashes + leaves.parent()[row]);
      __builtin_prefetch(hashes + leaves.node()[row], 1);
    }
    for (std::size_t row = 0; row < size; ++row) {
      const NodeId parent = leaves.parent()[row];
      const std::uint32_t seed = parent == agentq::kNoNode
                                     ? 1 + static_cast<std::uint32_t>(leaves.tree()[row]) * kGolden
                                     : hashes[parent] + (leaves.rank()[row] + 1) * kGolden;
      const std::uint32_t hash = mix(seed);
      hashes[leaves.node()[row]] = hash;
      widths[row] = leaves.depth()[row] < kDepth ? work.width_of(hash) : 0;
      values[row] = (hash >> 8) * 0x1p-24;
    }
    leaves.step(std::span(values).first(size), std::span(widths).first(size));
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
  const std::size_t block = (work.widest() + 2) / 2 * 2;
  const std::size_t cells = static_cast<std::size_t>(work.trees) * (256 + 4 * block * (static_cast<std::size_t>(work.simulations) + 1));
  const auto memory = agentq::Reserve::make(cells * sizeof(std::uint32_t));  // huge pages, like the forest's
  for (int i = 0; i < std::atoi(argv[6]); ++i) {
    const double start = cpu_seconds();
    Forest forest(config);
    const std::vector<TreeId> trees = forest.add_trees(static_cast<std::size_t>(work.trees));
    search(forest, trees, work, memory->as<std::uint32_t>());
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
