#include "csrc/lockstep.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "csrc/check.h"

namespace agentq {

Lockstep::Lockstep(Forest& forest, std::span<const TreeId> trees, std::uint32_t simulations, std::size_t n)
    : forest_(forest), n_(n), trees_(trees.begin(), trees.end()) {
  if (forest.is_walked()) throw std::invalid_argument("selection must be ucb1, uct or puct to search in lockstep");
  if (n < 1) throw std::invalid_argument("n must be at least 1; got 0");
  if (!trees.empty() && n > ticket::kMost / trees.size())
    throw std::invalid_argument("at most " + std::to_string(ticket::kMost) + " rollouts must be in flight at once; got " +
                                std::to_string(trees.size()) + " trees with " + std::to_string(n) + " each");
  forest.check_asked(trees, simulations);
  for (const TreeId id : trees)
    if (forest.live_tree(id).in_lockstep)
      throw std::invalid_argument("a tree must be in one lockstep at a time; tree " + std::to_string(id) + " is in another");
  left_.assign(trees.size(), simulations);
  quota_.resize(trees.size()), found_.resize(trees.size()), status_.resize(trees.size());
  const std::size_t rows = trees.size() * n;
  node_.resize(rows), parent_.resize(rows), rank_.resize(rows), depth_.resize(rows), tree_.resize(rows);
  forest.locksteps_.push_back(this);
  for (const TreeId id : trees) forest.live_tree(id).in_lockstep = true;
  ask();
}

Lockstep::~Lockstep() {
  for (std::size_t row = 0; row < size_; ++row) {
    forest_.leave(node_[row]);
    if (const std::uint32_t word = forest_.slot(node_[row]).link; !link::is_leaf(word)) --forest_.header(link::block(word)).here;
    forest_.unstart(node_[row]);
    --forest_.live_tree(tree_[row]).open;
  }
  for (const TreeId id : trees_) forest_.live_tree(id).in_lockstep = false;
  std::erase(forest_.locksteps_, this);
}

void Lockstep::check(std::span<const double> values, std::span<const std::uint32_t> widths) const {
  check_length("values", values.size(), "row", size_);
  check_length("widths", widths.size(), "row", size_);
  bool good = true;
  for (std::size_t row = 0; row < size_; ++row) {
    const std::uint32_t word = forest_.slot(node_[row]).link;
    const bool is_ended = (word & link::kTerminal) != 0;
    good &= std::isfinite(values[row]) & (widths[row] <= kMaxWidth) & link::is_leaf(word) & !(is_ended & (widths[row] > 0));
  }
  if (good) [[likely]] return;
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
  for (std::size_t row = 0; row < size_; ++row) finish(row, values[row], widths[row]);
  ask();
}

/// Leaves out the trees that have had their rollouts or are exhausted.
void Lockstep::retire() noexcept {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < trees_.size(); ++i) {
    Forest::Tree& tree = forest_.trees_[static_cast<std::size_t>(trees_[i])];
    const Slot& root = forest_.slot(tree.root);
    trees_[kept] = trees_[i], left_[kept] = left_[i];
    const bool stays = (left_[i] > 0) & !link::is_exhausted(root.link) & (root.visits_started <= kMaxRollouts - n_);
    kept += stays;
    tree.in_lockstep = stays;
  }
  trees_.resize(kept), left_.resize(kept);
}

void Lockstep::ask() noexcept {
  retire();
  for (std::size_t i = 0; i < trees_.size(); ++i) {
    quota_[i] = static_cast<std::uint32_t>(std::min<std::size_t>(n_, left_[i]));
    found_[i] = 0, status_[i] = 0;
  }
  forest_.find({trees_, n_, quota_.data(), found_.data(), status_.data(), node_.data(), depth_.data()});
  size_ = 0;
  for (std::size_t i = 0; i < trees_.size(); ++i) {
    Forest::Tree& tree = forest_.trees_[static_cast<std::size_t>(trees_[i])];
    for (std::size_t at = i * n_; at < i * n_ + found_[i]; ++at, ++size_) {
      const NodeId leaf = node_[at];
      node_[size_] = leaf, depth_[size_] = depth_[at], tree_[size_] = trees_[i];
      const std::uint32_t index = forest_.slot(leaf).link & link::kIndex;
      const NodeId block = leaf - 1 - index;
      parent_[size_] = forest_.header(block).parent;
      rank_[size_] = index + forest_.children_before(block);
    }
    tree.open += found_[i];
    left_[i] -= found_[i];
    forest_.prefetch_room(tree);
  }
}

}  // namespace agentq
