#include "csrc/lockstep.h"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

#include "csrc/check.h"

namespace agentq {

Lockstep::Lockstep(Forest& forest, std::span<const TreeId> trees, std::uint32_t simulations, std::size_t n)
    : forest_(forest), n_(n), trees_(trees.begin(), trees.end()) {
  if (forest.is_walked()) throw std::invalid_argument("selection must be ucb1, uct or puct to search in lockstep");
  if (simulations < 1 || n < 1)
    throw std::invalid_argument("simulations and n must be at least 1; got " + std::to_string(simulations) + " and " +
                                std::to_string(n));
  if (!trees.empty() && n > ticket::kMost / trees.size())
    throw std::invalid_argument("at most " + std::to_string(ticket::kMost) +
                                " rollouts must be in flight at once; got " + std::to_string(trees.size()) +
                                " trees with " + std::to_string(n) + " each");
  forest.check_asked(trees, simulations);
  for (const TreeId id : trees)
    if (forest.live_tree(id).reserved > 0)
      throw std::invalid_argument("a tree must be in one lockstep at a time; tree " + std::to_string(id) +
                                  " is in another");
  left_.assign(trees.size(), simulations);
  quota_.resize(trees.size()), found_.resize(trees.size()), status_.resize(trees.size());
  const std::size_t rows = trees.size() * n;
  node_.resize(rows), parent_.resize(rows), rank_.resize(rows), depth_.resize(rows), tree_.resize(rows);
  forest.locksteps_.push_back(this);
  for (const TreeId id : trees) forest.live_tree(id).reserved = simulations;
  ask();
}

Lockstep::~Lockstep() {
  for (std::size_t row = 0; row < size_; ++row) {
    forest_.undo(node_[row]);
    --forest_.live_tree(tree_[row]).open;
  }
  for (const TreeId id : trees_) forest_.live_tree(id).reserved = 0;
  std::erase(forest_.locksteps_, this);
}

void Lockstep::check(std::span<const double> values, std::span<const std::uint32_t> widths) const {
  check_length("values", values.size(), "row", size_);
  check_length("widths", widths.size(), "row", size_);
  // Without a branch per row. An exponent of ones (infinity or NaN) carries into the sign.
  std::uint64_t infinite = 0;
  for (const double value : values)
    infinite |= (std::bit_cast<std::uint64_t>(value) & 0x7FF0000000000000) + 0x0010000000000000;
  std::uint32_t bad = 0;
  const NodeId* const nodes = node_.data();
  for (std::size_t row = 0; row < size_; ++row) {
    const std::uint32_t word = forest_.slot(nodes[row]).link;
    bad |= (~word & link::kLeaf) | widths[row] >> 16 | (widths[row] > 0 ? word & link::kTerminal : 0);
  }
  if (((infinite >> 63) | bad) == 0) [[likely]] return;
  check_finite("values", values);
  for (std::size_t row = 0; row < size_; ++row) {
    if (widths[row] > kMaxWidth)
      throw std::invalid_argument("widths must be in [0, " + std::to_string(kMaxWidth) + "]; got " +
                                  std::to_string(widths[row]));
    const std::uint32_t word = forest_.slot(node_[row]).link, children = forest_.children_of(node_[row]);
    if (children > 0 || ((word & link::kTerminal) != 0 && widths[row] > 0))
      throw std::invalid_argument(describe(node_[row]) + " must be a leaf to be expanded; got " +
                                  (children > 0 ? std::to_string(children) + " children" : "a terminal node"));
  }
}

/// Ends a rollout: children or a terminal mark for its leaf, its return for the path.
[[gnu::always_inline]] inline void Lockstep::finish(std::size_t row, double value, std::uint32_t width) noexcept {
  Forest& f = forest_;
  const NodeId leaf = node_[row];
  Forest::Tree& tree = f.trees_[static_cast<std::size_t>(tree_[row])];
  --tree.open;
  Slot& here = f.slot(leaf);
  const NodeId above = leaf - 1 - (here.link & link::kIndex);
  here.link -= link::kPendingOne;
  const NodeId block = width > 0 ? f.claim(tree, width, width) : kNoNode;
  if (block != kNoNode) {
    f.grow(leaf, block, width);
    f.fill_defaults(block + 1, width);
  } else if (width == 0) {
    here.link |= link::kTerminal;
  }
  f.add_return(leaf, above, value);
  if (width == 0 && f.config_.exhaust) f.mark_exhausted(leaf);
}

void Lockstep::step(std::span<const double> values, std::span<const std::uint32_t> widths) {
  check(values, widths);
  for (std::size_t row = 0, size = size_; row < size; ++row) finish(row, values[row], widths[row]);
  ask();
}

/// Leaves out the trees that have had their rollouts. The others can be asked `steps_` times before this must be done
/// again.
void Lockstep::retire() noexcept {
  std::size_t kept = 0;
  std::uint32_t least = kMaxRollouts;
  for (std::size_t i = 0; i < trees_.size(); ++i) {
    trees_[kept] = trees_[i], left_[kept] = left_[i];
    if (left_[i] == 0) {
      forest_.live_tree(trees_[i]).reserved = 0;
      continue;
    }
    quota_[kept++] = static_cast<std::uint32_t>(std::min<std::size_t>(n_, left_[i]));
    least = std::min(least, left_[i]);
  }
  trees_.resize(kept), left_.resize(kept);
  steps_ = std::max<std::size_t>(1, least / n_);
}

void Lockstep::ask() noexcept {
  if (steps_ == 0) retire();
  --steps_;
  std::fill_n(found_.data(), trees_.size(), 0u);
  std::fill_n(status_.data(), trees_.size(), std::uint8_t{0});
  NodeId* const nodes = node_.data();
  std::int32_t* const depths = depth_.data();
  forest_.find({trees_, n_, quota_.data(), found_.data(), status_.data(), nodes, depths});
  std::size_t size = 0;
  for (std::size_t i = 0; i < trees_.size(); ++i) {
    Forest::Tree& tree = forest_.trees_[static_cast<std::size_t>(trees_[i])];
    const std::uint32_t found = found_[i];
    forest_.prefetch_room(tree);
    tree.open += found;
    left_[i] -= found;
    for (std::size_t at = i * n_; at < i * n_ + found; ++at, ++size)
      nodes[size] = nodes[at], depths[size] = depths[at], tree_[size] = trees_[i];
  }
  size_ = size;
  NodeId* const parents = parent_.data();
  std::uint32_t* const ranks = rank_.data();
  for (std::size_t row = 0; row < size; ++row) {
    const std::uint32_t index = forest_.slot(nodes[row]).link & link::kIndex;
    const NodeId block = nodes[row] - 1 - index;
    parents[row] = forest_.header(block).parent;
    ranks[row] = index + forest_.children_before(block);
  }
}

}  // namespace agentq
