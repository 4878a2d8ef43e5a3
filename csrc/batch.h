// Records of rollouts while they are found and while they are in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "csrc/results.h"

namespace agentq {

struct Rollout {
  Ticket ticket = ticket::kNone;  // none: free
  NodeId node = kNoNode;          // free: the next free entry
  TreeId tree = 0;
};

/// A leaf that best-first search may take: the largest value first, then the lowest id.
struct Open {
  float value;
  NodeId node;
  bool operator<(const Open& other) const noexcept {
    return value != other.value ? value < other.value : node > other.node;
  }
};

using Lane = std::uint64_t;  // a row and, in the lower half, a node

struct Found {
  AskStatus status;
  NodeId node;
  std::int32_t depth = 0;
};

/// One descent to up to quota[r] <= n leaves of each tree r. It finds found[r], stored from index r * n.
struct Batch {
  std::span<const TreeId> trees;
  std::size_t n;
  const std::uint32_t* quota;
  std::uint32_t* found;
  std::uint8_t* status;  // AskStatus
  NodeId* node;
  std::int32_t* depth;
};

}  // namespace agentq
