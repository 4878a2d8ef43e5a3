// How a forest selects and backs up. Owns names and defaults; what they mean stands where they are used.
#pragma once

#include <cstdint>
#include <limits>

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
enum class Unvisited : std::uint8_t {
  kFormula = 0,  // an edge without visits is scored like any other (Agent Q's 1 + N)
  kFirst = 1,    // an edge without visits goes first, lowest index first
};
enum class Backup : std::uint8_t {
  kMean = 0,  // Q = W / N: the mean return below an edge
  kMax = 1,   // Q = the largest return below an edge
};
struct ForestConfig {
  Selection selection = Selection::kUcb1;
  double c_exp = 1.0;  // exploration constant, in reward units, finite and at least 0
  Unvisited unvisited = Unvisited::kFormula;  // kUct: kFirst whatever is said here
  bool exhaust = true;                        // selection passes over exhausted nodes
  Backup backup = Backup::kMean;
  double discount = 1.0;  // in (0, 1]: a return counts discount^d, d edges above the node that it was told at
  double alpha = 1.0;     // in [0, 1]: selection sees alpha * Q + (1 - alpha) * critic_value
  bool squares = false;   // keep the sum of squared returns of every node, 8 bytes more
  double success_at = std::numeric_limits<double>::quiet_NaN();  // keep the number of returns of at least this, 4 bytes more
  bool transpositions = false;  // selection sees the Q of a child's state (set_states); kUcb1, kUct and kPuct alone
  std::uint64_t seed = 0;            // of Gumbel's and Thompson's draws: the same seed and the same calls, the same trees
  std::uint32_t num_simulations = 0;  // kGumbel: rollouts of a tree from which its root's action is chosen, at least 1
  std::uint32_t max_considered = 16;  // kGumbel: children of the root that are visited at all, at least 1
  double gumbel_scale = 1.0;          // kGumbel: of the noise; 0 takes the best actions for sure
  std::uint32_t threads = 1;          // that a call on many trees may use; changes nothing but time
  std::uint64_t max_bytes = std::uint64_t{8} << 30;  // of cells and what lies beside them
};

}  // namespace agentq
