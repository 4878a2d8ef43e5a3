// How a forest selects. Owns names and defaults; what they mean stands where they are used.
#pragma once

#include <cstdint>

namespace agentq {

enum class Selection : std::uint8_t {
  kUcb1 = 0,
  kUct = 1,
  kPuct = 2,
  kBestFirst = 3,
  kGumbel = 4,
  kThompsonGaussian = 5,
  kThompsonBeta = 6,
};
struct ForestConfig {
  Selection selection = Selection::kUcb1;
  double c_exp = 1.0;   // exploration constant, in reward units, finite and at least 0
  bool exhaust = true;  // selection passes over exhausted nodes
  std::uint64_t seed = 0;             // of Gumbel's and Thompson's draws: the same seed and calls give the same trees
  std::uint32_t num_simulations = 0;  // kGumbel: rollouts of a tree from which its root's action is chosen, at least 1
  std::uint32_t max_considered = 16;  // kGumbel: children of the root that are visited at all, at least 1
  double gumbel_scale = 1.0;          // kGumbel: factor of the noise at the root; 0 takes the best actions for sure
  std::uint64_t max_bytes = std::uint64_t{8} << 30;  // of cells and what lies beside them
};

}  // namespace agentq
