// Whether a forest that was read is one that calls can have made. Owns the proof; changes nothing but what follows from it:
// which cells are blocks, and how many nodes there are.
#pragma once

#include <span>
#include <vector>

#include "csrc/forest.h"

namespace agentq {

/// A chunk of a tree: the cells from `cell` to `end`, of which those below `used` have been handed out.
struct UsedChunk {
  std::uint32_t cell, used, end;
  TreeId tree;
};

class Validator {
 public:
  static constexpr std::uint32_t kLargest = 17;  // log2 of the cells of a chunk: a header and 65535 children need as much

  Validator(Forest& forest, std::span<const UsedChunk> chunks);

  /// @throws std::invalid_argument at the first thing that cannot be. Takes time and memory in proportion to the nodes.
  void run();

 private:
  void tree(TreeId id, std::span<const UsedChunk> chunks);
  void children(NodeId node);
  void node(NodeId node, std::uint32_t index);
  void values(NodeId node) const;
  void told_here(NodeId node, double below) const;
  void enter(NodeId node, std::uint32_t index);
  void claim(NodeId block, std::uint32_t cells);
  void mark(std::uint32_t from, std::uint32_t end, bool is_open);

  Forest& f_;
  std::span<const UsedChunk> chunks_;
  std::shared_ptr<Reserve> memory_;  // a bit for two cells: the tree at hand may have a block there
  std::uint64_t* open_;
  std::vector<NodeId> inner_;
  std::span<const State> states_;      // of the tree at hand
  std::vector<std::uint64_t> through_;  // rollouts through nodes that are each of them
  std::uint64_t nodes_ = 0;
};

}  // namespace agentq
