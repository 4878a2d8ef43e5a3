// Results of calls on a forest, as plain columns.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/cells.h"
#include "csrc/tickets.h"

namespace agentq {

using TreeId = std::int32_t;

enum class AskStatus : std::uint8_t {
  kOk = 0,         // n leaves found
  kExhausted = 1,  // the root is exhausted: every path has been told to its end
  kBlocked = 2,    // selection met a leaf that is in flight; fewer than n leaves came back
};
enum Flag : std::uint8_t {
  kTerminal = 1,   // the episode ends here
  kExhausted = 2,  // nothing left to learn below: terminal and told, or all children exhausted
};

/// One rollout newly in flight.
struct Leaf {
  Ticket ticket;
  NodeId node;
};

/// Rollouts newly in flight, grouped by tree; `status` has one entry per tree asked.
struct Leaves {
  std::vector<Ticket> ticket;
  std::vector<NodeId> node;
  std::vector<TreeId> tree;
  std::vector<std::int32_t> depth;
  std::vector<std::uint8_t> status;  // AskStatus
};

/// Trees one after another. Within a tree, parents come before children, and siblings are adjacent and in order.
struct TreeTable {
  std::vector<NodeId> id;
  std::vector<TreeId> tree;
  std::vector<std::int32_t> parent;  // rows of this table; -1 for a root
  std::vector<std::int32_t> depth;
  std::vector<std::uint32_t> visit_count;  // N: rollouts told
  std::vector<std::uint32_t> in_flight;
  std::vector<double> value_sum;
  std::vector<float> critic_value, prior;
  std::vector<std::uint8_t> flags;  // Flag
};

}  // namespace agentq
