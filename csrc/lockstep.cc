#include "csrc/lockstep.h"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

#include "csrc/check.h"

namespace agentq {

constexpr std::uint32_t kLaid = 8;  // children written at least where widths vary

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
  found_node_.resize(rows), found_depth_.resize(rows), told_.resize(rows);
  if (trees.size() > 1) {
    paths_.resize(groups());
    lanes_ = std::make_unique_for_overwrite<Lane[]>(rows * Path::kLevels + groups() * Forest::kLanes);
    const std::size_t lanes = Forest::kLanes * (n * Path::kLevels + 1);  // of a whole group
    for (std::size_t i = 0; i < groups(); ++i) paths_[i].lanes = lanes_.get() + i * lanes;
  }
  forest.locksteps_.push_back(this);
  for (const TreeId id : trees) forest.live_tree(id).reserved = simulations;
  ask();
  list();
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

/// Ends a rollout: children or a terminal mark for its leaf, its return for the leaf and some of its
/// ancestors.
[[gnu::always_inline]] inline void Lockstep::finish(std::size_t row, double value, std::uint32_t width,
                                                     std::int32_t ancestors) noexcept {
  Forest& f = forest_;
  const NodeId leaf = node_[row];
  Forest::Tree& tree = f.trees_[static_cast<std::size_t>(tree_[row])];
  --tree.open;
  Slot& here = f.slot(leaf);
  const NodeId above = leaf - 1 - (here.link & link::kIndex);
  here.link -= link::kPendingOne;
  const NodeId block = width > 0 ? f.claim(tree, width, width) : kNoNode;
  if (block != kNoNode) {
    // Where widths vary, the end of a loop over the children would be mispredicted. The cells after the block are free.
    const bool alone = ancestors == Forest::kEveryLevel;  // a tree alone would be slower
    const bool varies = !alone && f.header(above).width != width && tree.end - block > kLaid;
    f.grow(leaf, block, width, varies ? kLaid : 0);
    f.fill_defaults(block + 1, width);
  } else if (width == 0) {
    here.link |= link::kTerminal;
  }
  f.add_return(leaf, above, value, ancestors);
  if (width == 0 && f.config_.exhaust) f.mark_exhausted(leaf);
}

/// Ends the rollouts of a group of trees, whose first row is given. Returns the row after its last.
std::size_t Lockstep::finish_group(std::size_t group, std::size_t row, const double* values,
                                   const std::uint32_t* widths) noexcept {
  Path& path = paths_[group];
  double* const told = told_.data() + group * Forest::kLanes * n_;
  for (std::size_t i = group * Forest::kLanes, place = 0; i < end_of(group); ++i, place += n_)
    for (std::size_t k = 0; k < found_[i]; ++k, ++row) {
      told[place + k] = values[row];
      finish(row, values[row], widths[row], depth_[row] - Path::kLevels);
    }
  for (const Lane* lane = path.lanes; lane < path.end(); ++lane)
    forest_.slot(static_cast<NodeId>(*lane)).value_sum += told[*lane >> 32];
  path.size = 0;
  return row;
}

/// Group by group, so that a descent finds in the cache what ending the rollouts before it has read.
void Lockstep::step(std::span<const double> values, std::span<const std::uint32_t> widths) {
  check(values, widths);
  const bool retires = steps_ == 0;
  std::size_t row = 0;
  if (paths_.empty())
    for (; row < values.size(); ++row) finish(row, values[row], widths[row], Forest::kEveryLevel);
  for (std::size_t group = 0; group < paths_.size() && group < groups(); ++group) {
    row = finish_group(group, row, values.data(), widths.data());
    if (!retires) ask(group);
  }
  if (retires || paths_.empty()) ask();
  list();
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

/// Asks leaves of all trees that have rollouts left.
void Lockstep::ask() noexcept {
  if (steps_ == 0) retire();
  for (std::size_t group = 0; group < groups(); ++group) ask(group);
}

/// Asks leaves of a group of trees.
[[gnu::always_inline]] inline void Lockstep::ask(std::size_t group) noexcept {
  const std::size_t first = group * Forest::kLanes, size = end_of(group) - first;
  std::fill_n(found_.data() + first, size, 0u);
  std::fill_n(status_.data() + first, size, std::uint8_t{0});
  forest_.find({std::span(trees_).subspan(first, size), n_, quota_.data() + first, found_.data() + first,
                status_.data() + first, found_node_.data() + first * n_, found_depth_.data() + first * n_,
                paths_.empty() ? nullptr : &paths_[group]});
}

/// Makes rows of what has been asked.
void Lockstep::list() noexcept {
  --steps_;
  NodeId* const nodes = node_.data();
  std::int32_t* const depths = depth_.data();
  std::size_t size = 0;
  for (std::size_t i = 0; i < trees_.size(); ++i) {
    Forest::Tree& tree = forest_.trees_[static_cast<std::size_t>(trees_[i])];
    const std::uint32_t found = found_[i];
    forest_.prefetch_room(tree);
    tree.open += found;
    left_[i] -= found;
    for (std::size_t at = i * n_; at < i * n_ + found; ++at, ++size)
      nodes[size] = found_node_[at], depths[size] = found_depth_[at], tree_[size] = trees_[i];
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
