// What calls on a forest take and give back: plain columns.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/cells.h"
#include "csrc/tickets.h"

namespace agentq {

using TreeId = std::int32_t;

enum class AskStatus : std::uint8_t {
  kOk = 0,         // n leaves found
  kExhausted = 1,  // the root is exhausted: every path was told to its end
  kBlocked = 2,    // selection met a leaf that is in flight; fewer than n leaves came back
};
enum Flag : std::uint8_t {
  kTerminal = 1,   // the episode ends here
  kExhausted = 2,  // nothing left to learn below: terminal and told, or all children exhausted
};

/// Rollouts newly in flight, those of one tree together; `status` has one entry per tree asked.
struct Leaves {
  std::vector<Ticket> ticket;
  std::vector<NodeId> node;
  std::vector<TreeId> tree;
  std::vector<std::int32_t> depth;
  std::vector<std::uint8_t> status;  // AskStatus
};

/// Trees one after the other; in each parents before children, the children of a node together and in order.
struct TreeTable {
  std::vector<NodeId> id;
  std::vector<TreeId> tree;
  std::vector<std::int32_t> parent;  // rows of this table; -1 for a root
  std::vector<std::int32_t> depth;
  std::vector<std::uint32_t> visit_count;  // told
  std::vector<std::uint32_t> in_flight;
  std::vector<double> value_sum, square_sum;  // square_sum: empty unless the forest keeps squares
  std::vector<std::uint32_t> own_count;       // told at the node itself, not deeper
  std::vector<double> own_sum;                // of their returns; empty with Backup::kMax
  std::vector<std::uint32_t> successes;       // empty unless success_at is given
  std::vector<std::int32_t> state;            // of the tree's states; -1: none
  std::vector<float> critic_value, logp, prior;
  std::vector<std::uint8_t> flags;  // Flag
};

/// What all nodes of a tree that are one state come to: edges keep their own counts beside it.
struct State {
  std::uint64_t key;
  double value_sum;
  std::uint32_t started;
};

struct PairQuery {
  double alpha = 0.5;                    // weight of the search's mean value against the critic's, in [0, 1]
  double threshold = 0.0;                // least gap, at least 0
  std::uint32_t min_visits = 1;          // of both children
  std::uint32_t max_pairs_per_node = 0;  // 0: all
};

/// Parallel arrays: at `node`, its child `chosen` over its child `rejected`.
struct Pairs {
  std::vector<NodeId> node, chosen, rejected;
  std::vector<double> gap;  // > 0, in reward units
};

}  // namespace agentq
