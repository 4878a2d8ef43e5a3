// What a node and its children are in memory: cells of 16 bytes. Owns the layout, no memory. forest.h draws it.
#pragma once

#include <cstdint>

namespace agentq {

using NodeId = std::uint32_t;

inline constexpr NodeId kNoNode = 0xFFFFFFFFu;  // the parent of a root, the first child of a leaf
inline constexpr std::uint32_t kMaxWidth = 0xFFFFu;
inline constexpr std::uint64_t kMaxCells = std::uint64_t{1} << 31;

/// One node.
struct Slot {
  double value_sum;              // W: the sum of the returns told through it
  std::uint32_t visits_started;  // visit_count N + in_flight: cancelling a rollout leaves no rounding behind
  std::uint32_t link;            // see the namespace link
};

/// What stands before the children of a node.
struct Header {
  NodeId parent;        // kNoNode before a root
  std::uint32_t here;   // in the first block: rollouts that ended or wait at the parent itself (before a root: its tree);
                        // in a further block: the children there is room for
  NodeId next;          // the block of further children, 0 if there is none (see widen)
  std::uint16_t width;  // children in this block
  std::uint16_t index;  // of the parent in its block: that block lies index + 1 cells before the parent
};

union Cell {
  Slot slot;
  Header header;
};

/// Cells of a block for so many children: blocks start at even cells.
inline constexpr std::uint32_t cells_of(std::uint32_t width) noexcept { return (width + 2) & ~1u; }
/// Children there is room for in a node's first block, made for `width` or one fewer.
inline constexpr std::uint32_t room_of(std::uint32_t width) noexcept { return cells_of(width) - 1; }

/// The last word of a slot.
namespace link {
inline constexpr std::uint32_t kLeaf = 1u << 31, kExhausted = 1u << 30, kTerminal = 1u << 29;
inline constexpr std::uint32_t kPendingOne = 1u << 16, kPending = 0x1FFFu << 16, kIndex = 0xFFFFu;
inline constexpr std::uint32_t kBlock = (1u << 30) - 1;
inline constexpr bool is_leaf(std::uint32_t word) noexcept { return (word & kLeaf) != 0; }
inline constexpr bool is_exhausted(std::uint32_t word) noexcept { return (word & kExhausted) != 0; }
/// A leaf that may be asked: none waits at it, and there is something left to learn.
inline constexpr bool is_open(std::uint32_t word) noexcept {
  return is_leaf(word) && (word & (kPending | kExhausted)) == 0;
}
inline constexpr NodeId block(std::uint32_t word) noexcept { return (word & kBlock) << 1; }
}  // namespace link

}  // namespace agentq
