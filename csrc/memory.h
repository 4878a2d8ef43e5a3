// Allocation of blocks: the chunks of a tree, free chunks, the byte limit, which cells are nodes. Owns the cells and
// the columns beside them; knows no search rule.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "csrc/arena.h"
#include "csrc/cells.h"

namespace agentq {

class Memory {
 public:
  std::uint64_t num_nodes() const noexcept { return num_nodes_; }
  std::uint64_t bytes_in_use() const noexcept { return used_cells_ * bytes_per_cell(); }
  /// The cells. Their address never changes while a reference to the reserve exists.
  const std::shared_ptr<Reserve>& cells() const noexcept { return cell_memory_; }
  std::uint32_t num_cells() const noexcept { return top_; }

 protected:
  /// @throws ByteLimit if that much address space cannot be reserved.
  explicit Memory(std::uint64_t max_bytes);

  static constexpr std::uint32_t kFirstChunk = 5, kLargestChunk = 16;  // log2 of cells

  /// The chunks of one tree.
  struct Chunks {
    std::uint32_t bump = 0, end = 0;  // free cells of the last chunk
    std::uint32_t last = kNoNode;     // the last chunk; the first cell of each links to the one before
    std::uint32_t next_size = kFirstChunk;
    std::uint32_t nodes = 0;
  };

  Slot& slot(NodeId node) const noexcept { return cells_[node].slot; }
  Header& header(NodeId block) const noexcept { return cells_[block].header; }
  /// The block that contains a node.
  NodeId block_of(NodeId node) const noexcept {
    const std::uint32_t word = slot(node).link;
    const std::uint32_t index = link::is_leaf(word) ? word & link::kIndex : header(link::block(word)).index;
    return node - 1 - index;
  }
  NodeId parent_of(NodeId node) const noexcept { return header(block_of(node)).parent; }
  bool is_node(NodeId node) const noexcept;
  /// Calls `act` with each child of a node, in order, given the node's first block.
  template <typename Act>
  void for_children(NodeId block, Act&& act) const {
    for (; block != 0; block = header(block).next)
      for (NodeId child = block + 1; child <= block + header(block).width; ++child) act(child);
  }
  std::uint32_t children_of(NodeId node) const noexcept;
  /// The number of a node's children in the blocks before the given one.
  std::uint32_t children_before(NodeId block) const noexcept {
    const NodeId parent = header(block).parent;
    if (parent == kNoNode) return 0;
    std::uint32_t before = 0;
    for (NodeId at = link::block(slot(parent).link); at != block; at = header(at).next) before += header(at).width;
    return before;
  }
  /// The child of the given rank, which must exist.
  NodeId child_at(NodeId block, std::uint32_t rank) const noexcept;
  std::vector<NodeId> below(NodeId node) const;  // the node and all below it, parents first, siblings together
  std::vector<NodeId> inner_by_block(NodeId node) const;  // nodes with children, parents first, then by block id

  NodeId claim(Chunks& tree, std::uint32_t room, std::uint32_t width);
  void free_chunks(Chunks& tree) noexcept;
  void lay_block(NodeId block, NodeId parent, std::uint32_t index, std::uint32_t width, std::uint32_t here,
                 std::uint32_t least = 0) noexcept;
  void lay_slot(NodeId node, std::uint32_t index) noexcept;

  std::uint64_t bytes_per_cell() const noexcept {
    return sizeof(Cell) + 4u * (bool{critic_} + bool{prior_}) + 8u * bool{squares_};
  }
  void make_critic_values() { make_column(critic_); }
  void make_priors() { make_column(prior_); }
  void make_squares() { squares_ = Reserve::make(max_bytes_ / sizeof(Cell) * sizeof(double)); }
  /// Fetches the memory that the tree's next children will take, as far as the last call has not.
  void prefetch_room(const Chunks& tree) const noexcept {
    __builtin_prefetch(cells_ + tree.bump + 4, 1);
    __builtin_prefetch(cells_ + tree.bump + 8, 1);
  }
  /// Critic values and priors of new children that come without any: 0, and 1 / width.
  void fill_defaults(NodeId first, std::uint32_t width) noexcept {
    if (critic_) std::fill_n(critic_->as<float>() + first, width, 0.0f);
    if (prior_) std::fill_n(prior_->as<float>() + first, width, 1.0f / static_cast<float>(width));
  }
  void make_columns(std::span<const float> critic_values, std::span<const float> priors);
  static float at(const std::shared_ptr<Reserve>& column, NodeId node) noexcept {
    return column ? column->as<float>()[node] : 0.0f;
  }

  std::uint64_t max_bytes_;
  std::shared_ptr<Reserve> cell_memory_, head_memory_;  // heads: one bit per two cells, set if a block starts there
  std::shared_ptr<Reserve> critic_, prior_;             // float per cell; absent until a value is given
  std::shared_ptr<Reserve> squares_;                    // double per cell: the sum of squared returns
  std::uint64_t used_cells_ = 0, num_nodes_ = 0;

 private:
  bool add_chunk(Chunks& tree, std::uint32_t need);
  std::uint32_t allocate_chunk(std::uint32_t log2);
  void make_column(std::shared_ptr<Reserve>& column);

  Cell* cells_ = nullptr;
  std::uint64_t* heads_ = nullptr;
  std::uint32_t top_ = 0;         // number of cells ever handed out
  std::uint32_t free_chunk_[32];  // lists of free chunks, by log2 of their size in cells
};

}  // namespace agentq
