#include "csrc/memory.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <queue>
#include <string>
#include <utility>

namespace agentq {
namespace {

constexpr std::uint32_t kGiveBack = 12;  // chunks of at least 2^12 cells (64 KiB) are returned to the system

}  // namespace

Memory::Memory(std::uint64_t max_bytes) : max_bytes_(max_bytes) {
  const std::uint64_t most_cells = max_bytes / sizeof(Cell);
  cell_memory_ = Reserve::make(most_cells * sizeof(Cell));
  head_memory_ = Reserve::make_zeroed(most_cells / 16 + 64);
  cells_ = cell_memory_->as<Cell>();
  heads_ = head_memory_->as<std::uint64_t>();
  std::fill(std::begin(free_chunk_), std::end(free_chunk_), kNoNode);
}

void Memory::make_column(std::shared_ptr<Reserve>& column) {
  if (column) return;
  column = Reserve::make(max_bytes_ / sizeof(Cell) * sizeof(float));
  std::fill_n(column->as<float>(), top_, 0.0f);
}

/// Makes the columns for the given values, unless all of them are 0.
void Memory::make_columns(std::span<const float> critic_values, std::span<const float> priors) {
  const auto lacks = [](const std::shared_ptr<Reserve>& column, std::span<const float> values) {
    return !column && std::any_of(values.begin(), values.end(), [](float value) { return value != 0.0f; });
  };
  const bool critic = lacks(critic_, critic_values), prior = lacks(prior_, priors);
  if (used_cells_ * (bytes_per_cell() + sizeof(float) * (critic + prior)) > max_bytes_)
    throw ByteLimit("critic values or priors must fit max_bytes (" + std::to_string(max_bytes_) + "); they would pass it");
  if (critic) make_critic_values();
  if (prior) make_priors();
}

std::uint32_t Memory::allocate_chunk(std::uint32_t log2) {
  const std::uint64_t cells = std::uint64_t{1} << log2;
  if ((used_cells_ + cells) * bytes_per_cell() > max_bytes_) return kNoNode;
  std::uint32_t from = log2;
  while (from < 32 && free_chunk_[from] == kNoNode) ++from;
  std::uint32_t chunk = top_;
  if (from < 32) {
    chunk = free_chunk_[from];
    free_chunk_[from] = header(chunk).parent;
    for (; from > log2; --from) {  // the upper half becomes free
      const std::uint32_t half = chunk + (1u << (from - 1));
      header(half) = {free_chunk_[from - 1], from - 1, 0, 0, 0};
      free_chunk_[from - 1] = half;
    }
  } else {
    if (top_ + cells > max_bytes_ / sizeof(Cell)) return kNoNode;
    top_ += static_cast<std::uint32_t>(cells);
  }
  used_cells_ += cells;
  header(chunk) = {kNoNode, log2, 0, 0, 0};
  return chunk;
}

/// Adds a chunk with room for `need` cells to a tree; false at the byte limit.
bool Memory::add_chunk(Chunks& tree, std::uint32_t need) {
  // two cells for the chunk's own list
  const std::uint32_t least = std::max(kFirstChunk, static_cast<std::uint32_t>(std::bit_width(need + 1)));
  std::uint32_t log2 = std::max(tree.next_size, least);
  std::uint32_t chunk = allocate_chunk(log2);
  while (chunk == kNoNode && log2 > least) chunk = allocate_chunk(--log2);
  if (chunk == kNoNode) return false;
  header(chunk).parent = tree.last;
  tree.last = chunk;
  tree.bump = chunk + 2;
  tree.end = chunk + (1u << log2);
  tree.next_size = std::min(std::max(tree.next_size, log2) + 1, kLargestChunk);
  return true;
}

void Memory::free_chunks(Chunks& tree) noexcept {
  for (std::uint32_t chunk = tree.last; chunk != kNoNode;) {
    const auto [next, log2] = std::pair(header(chunk).parent, header(chunk).here);
    const std::size_t cells = std::size_t{1} << log2;
    std::fill_n(head_memory_->as<std::uint16_t>() + chunk / 32, cells / 32, std::uint16_t{0});
    if (log2 >= kGiveBack) {
      cell_memory_->give_back(chunk * sizeof(Cell), cells * sizeof(Cell));
      for (const auto& column : {critic_, prior_})
        if (column) column->give_back(chunk * sizeof(float), cells * sizeof(float));
      if (squares_) squares_->give_back(chunk * sizeof(double), cells * sizeof(double));
    }
    header(chunk) = {free_chunk_[log2], log2, 0, 0, 0};
    free_chunk_[log2] = chunk;
    used_cells_ -= cells;
    chunk = next;
  }
  tree.last = kNoNode;
  tree.bump = tree.end = 0;
}

/// A new block with space for `room` children, of which `width` are counted as nodes; kNoNode at the byte limit.
NodeId Memory::claim(Chunks& tree, std::uint32_t room, std::uint32_t width) {
  const std::uint32_t need = cells_of(room);
  if (tree.end - tree.bump < need && !add_chunk(tree, need)) [[unlikely]] return kNoNode;
  const NodeId block = tree.bump;
  tree.bump += need;
  heads_[block >> 7] |= std::uint64_t{1} << (block >> 1 & 63);
  tree.nodes += width;
  num_nodes_ += width;
  return block;
}

/// Writes a claimed block: its header and `width` leaves without visits, or `least` leaves if these are more.
void Memory::lay_block(NodeId block, NodeId parent, std::uint32_t index, std::uint32_t width,
                       std::uint32_t here, std::uint32_t least) noexcept {
  header(block) = {parent, here, 0, static_cast<std::uint16_t>(width), static_cast<std::uint16_t>(index)};
  Slot* const slots = &slot(block + 1);
  using Words [[gnu::vector_size(16)]] = std::uint32_t;
  Words fresh{0, 0, 0, link::kLeaf};
  const std::uint32_t end = std::max(width, least);
  for (std::uint32_t i = 0; i < end; ++i, fresh += Words{0, 0, 0, 1}) std::memcpy(slots + i, &fresh, sizeof(Slot));
  if (squares_) std::fill_n(squares_->as<double>() + block + 1, width, 0.0);
}

void Memory::lay_slot(NodeId node, std::uint32_t index) noexcept {
  slot(node) = {0.0, 0, link::kLeaf | index};
  if (squares_) squares_->as<double>()[node] = 0.0;
}

std::uint32_t Memory::children_of(NodeId node) const noexcept {
  const std::uint32_t word = slot(node).link;
  std::uint32_t width = 0;
  if (!link::is_leaf(word))
    for (NodeId block = link::block(word); block != 0; block = header(block).next) width += header(block).width;
  return width;
}

NodeId Memory::child_at(NodeId block, std::uint32_t rank) const noexcept {
  for (; rank >= header(block).width; block = header(block).next) rank -= header(block).width;
  return block + 1 + rank;
}

bool Memory::is_node(NodeId node) const noexcept {
  if (node >= top_) return false;
  std::size_t word = node >> 7;
  std::uint64_t bits = heads_[word] << (63 - (node >> 1 & 63)) >> (63 - (node >> 1 & 63));
  for (std::size_t scanned = 0; bits == 0; bits = heads_[--word])
    if (word == 0 || ++scanned > kMaxWidth / 128 + 1) return false;
  const auto block = static_cast<NodeId>((word << 6 | (63 - static_cast<unsigned>(std::countl_zero(bits)))) << 1);
  return node > block && node - block <= header(block).width;
}

std::vector<NodeId> Memory::below(NodeId node) const {
  std::vector<NodeId> nodes{node};
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const std::uint32_t word = slot(nodes[i]).link;
    if (!link::is_leaf(word)) for_children(link::block(word), [&](NodeId child) { nodes.push_back(child); });
  }
  return nodes;
}

std::vector<NodeId> Memory::inner_by_block(NodeId root) const {
  using Entry = std::pair<NodeId, NodeId>;  // block, its parent
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> next;
  const auto add = [&](NodeId node) {
    if (const std::uint32_t word = slot(node).link; !link::is_leaf(word)) next.push({link::block(word), node});
  };
  std::vector<NodeId> inner;
  for (add(root); !next.empty();) {
    const auto [block, node] = next.top();
    next.pop();
    inner.push_back(node);
    for_children(block, add);
  }
  return inner;
}

}  // namespace agentq
