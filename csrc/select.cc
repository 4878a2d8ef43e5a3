// Choosing the next leaves by a score. sampled.cc and best_first.cc implement the other rules.
#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "csrc/check.h"
#include "csrc/forest.h"

namespace agentq {

/// Calls `go` with the selection rule and whether nodes can be exhausted, the template arguments of the descent.
template <typename Go>
void Forest::by_rule(Go&& go) const {
  const auto with = [&](auto rule) { config_.exhaust ? go(rule, std::true_type{}) : go(rule, std::false_type{}); };
  switch (config_.selection) {
    case Selection::kUcb1: return with(Ucb1{});
    case Selection::kUct: return with(Uct{});
    case Selection::kPuct: return with(Puct{});
    default: return;  // handled by walk
  }
}

/// The child with the largest score; ties by fewer rollouts started, then by lower index.
/// Exhausted children are skipped (the flag is set only with config.exhaust); at least one child must not be exhausted.
/// kTabled: every child's count is in the score table. Testing each child instead would cost 5 % of a simulation.
template <typename Rule, bool kSkips, bool kTabled>
[[gnu::always_inline]] inline NodeId Forest::best_child(NodeId block, std::uint32_t parent_visits) const noexcept {
  const CountTable& table = *table_;
  const double scale = Rule::scale(table, config_.c_exp, parent_visits);
  const auto score_of = [&](NodeId child) {
    const Slot& edge = slot(child);
    const std::uint32_t n = edge.visits_started;
    const CountTable::Edge counted = kTabled ? table.tabled_edge(n) : table.edge(n);
    const float prior = Rule::kNeedsPrior ? at(prior_, child) : 0.0f;
    return Rule::score(table, edge.value_sum * counted.reciprocal, scale, counted, n, prior);
  };

  // The better child is unpredictable, so the loop does not branch on it. Ties are rare and take a second loop.
  NodeId best = block;
  double best_score = -std::numeric_limits<double>::infinity(), second = best_score;  // second equals best_score only in a tie
  const bool all_tie = !Rule::kNeedsPrior && parent_visits == 0;
  if (all_tie && !kSkips) return block + 1;
  NodeId run = block;
  do {
    const NodeId end = run + 1 + header(run).width;
    for (NodeId child = run + 1; child < end; ++child) {
      const Slot& edge = slot(child);
      if (kSkips && link::is_exhausted(edge.link)) continue;
      if (all_tie || (Rule::kUnvisitedFirst && edge.visits_started == 0)) return child;
      const double score = score_of(child);
      const double lesser = score < best_score ? score : best_score;
      second = lesser > second ? lesser : second;
      best = score > best_score ? child : best;
      best_score = score > best_score ? score : best_score;
    }
    run = header(run).next;
  } while (run != 0);
  // Tied children are mostly unvisited: take the first of them and skip the second loop (5 %).
  if ((best != block) & ((second < best_score) | (slot(best).visits_started == 0))) [[likely]] return best;
  const bool none = best == block;  // sums of huge returns have made every score infinite or NaN
  std::uint32_t fewest = none ? kMaxRollouts : slot(best).visits_started;
  for_children(block, [&](NodeId child) {
    const Slot& edge = slot(child);
    if (link::is_exhausted(edge.link) || (none && best != block)) return;
    if (!none && (edge.visits_started >= fewest || score_of(child) != best_score)) return;
    best = child;
    fewest = edge.visits_started;
  });
  return best;
}

/// The child that selection takes at an inner node. The node's count already includes this rollout.
template <typename Rule, bool kSkips>
[[gnu::always_inline]] inline NodeId Forest::select_child(const Slot& node) const noexcept {
  const NodeId block = link::block(node.link);
  const std::uint32_t parent_visits = node.visits_started - 1 - header(block).here;
  return node.visits_started < CountTable::kSize ? best_child<Rule, kSkips, true>(block, parent_visits)
                                                 : best_child<Rule, kSkips, false>(block, parent_visits);
}

Ticket Forest::open_rollout(TreeId tree, NodeId node) noexcept {
  std::uint32_t index = free_rollout_;
  if (index != kNoNode) {
    free_rollout_ = rollouts_[index].node;
    --free_rollouts_;
  } else {
    index = static_cast<std::uint32_t>(rollouts_.size());
    rollouts_.emplace_back();  // ask has reserved space
  }
  const Ticket ticket = ticket::of(numbers_.next(), index);
  rollouts_[index] = {ticket, node, tree};
  ++trees_[static_cast<std::size_t>(tree)].open;
  return ticket;
}

/// Ends a descent at a leaf: the rollout becomes pending there, or is undone if another is pending already.
[[gnu::always_inline]] inline void Forest::arrive(Batch& batch, Lane lane, std::int32_t depth) noexcept {
  const auto [node, row] = lane;
  Slot& leaf = slot(node);
  if ((leaf.link & link::kPending) != 0) {
    batch.leaves.status[row] = static_cast<std::uint8_t>(AskStatus::kBlocked);
    unstart(node);
    return;
  }
  leaf.link += link::kPendingOne;
  const std::size_t at = row * batch.n + batch.found[row]++;
  batch.leaves.node[at] = node;
  batch.leaves.depth[at] = depth;
}

/// Descends several trees side by side, level by level: the memory of one is fetched while others choose.
template <typename Rule, bool kSkips>
void Forest::descend(Batch& batch) noexcept {
  const std::span<const TreeId> trees = batch.trees;
  std::vector<std::uint8_t>& status = batch.leaves.status;
  std::array<Lane, kLanes> lanes, arrived;
  for (std::size_t begin = 0; begin < trees.size(); begin += kLanes)
    for (std::size_t round = 0; round < batch.n; ++round) {
      std::size_t inner = 0, there = 0;
      // The depth of a descent is unpredictable, so leaves and inner nodes are separated without a branch.
      const auto part = [&](NodeId node, std::uint32_t row) {
        const bool leaf = link::is_leaf(slot(node).link);
        arrived[there] = lanes[inner] = {node, row};
        there += leaf, inner += !leaf;
      };
      for (std::size_t row = begin; row < std::min(begin + kLanes, trees.size()); ++row) {
        if (status[row] != static_cast<std::uint8_t>(AskStatus::kOk)) continue;
        const NodeId root = trees_[static_cast<std::size_t>(trees[row])].root;
        if (link::is_exhausted(slot(root).link)) {
          status[row] = static_cast<std::uint8_t>(AskStatus::kExhausted);
          continue;
        }
        ++slot(root).visits_started;
        part(root, static_cast<std::uint32_t>(row));
      }
      for (std::int32_t depth = 0;; ++depth) {
        for (std::size_t i = 0; i < there; ++i) arrive(batch, arrived[i], depth);
        if (inner == 0) break;
        const std::size_t count = inner;
        inner = there = 0;
        for (std::size_t i = 0; i < count; ++i) {
          const Lane lane = lanes[i];
          const NodeId child = select_child<Rule, kSkips>(slot(lane.node));
          Slot& edge = slot(child);
          ++edge.visits_started;
          const NodeId next = link::is_leaf(edge.link) ? child : link::block(edge.link);
          __builtin_prefetch(&slot(next));
          __builtin_prefetch(&slot(next) + 4);
          part(child, lane.row);
        }
      }
    }
}

/// Finds leaves one at a time, for the rules that do not descend side by side.
void Forest::walk(Batch& batch) noexcept {
  for (std::size_t row = 0; row < batch.trees.size(); ++row)
    for (std::size_t i = 0; i < batch.n; ++i) {
      const Found found = walk_one(batch.trees[row], i > 0);
      batch.leaves.status[row] = static_cast<std::uint8_t>(found.status);
      if (found.status != AskStatus::kOk) break;
      const std::size_t at = row * batch.n + batch.found[row]++;
      batch.leaves.node[at] = found.node;
      batch.leaves.depth[at] = found.depth;
    }
}

/// Reserves space for `more` rollouts, so opening them cannot throw.
void Forest::reserve_rollouts(std::size_t more) {
  if (more <= free_rollouts_) return;
  const std::size_t want = rollouts_.size() + more - free_rollouts_;
  if (want > ticket::kMost)
    throw std::invalid_argument("at most " + std::to_string(ticket::kMost) + " rollouts must be in flight at once; got " +
                                std::to_string(want) + " with those asked for");
  if (want > rollouts_.capacity()) rollouts_.reserve(std::max({want, 2 * rollouts_.capacity(), std::size_t{64}}));
}

/// Finds leaves of all trees side by side, then gives them tickets in the order of the trees.
Leaves Forest::ask(std::span<const TreeId> trees, std::size_t n) {
  if (n < 1) throw std::invalid_argument("n must be at least 1; got 0");
  ++asks_;
  for (const TreeId id : trees) {
    Tree& tree = live_tree(id);
    if (tree.stamp == asks_)
      throw std::invalid_argument("a tree must be listed once a call; got tree " + std::to_string(id) + " twice");
    tree.stamp = asks_;
    if (n > kMaxRollouts - slot(tree.root).visits_started)
      throw std::invalid_argument("a tree must have at most " + std::to_string(kMaxRollouts) + " rollouts; tree " +
                                  std::to_string(id) + " would have more");
  }
  if (!trees.empty() && n > ticket::kMost) reserve_rollouts(n);  // throws
  const std::size_t all = trees.size() * n;
  reserve_rollouts(all);
  Batch& batch = batch_;  // reused: three allocations are 4 % of a small call
  batch.trees = trees, batch.n = n;
  batch.found.assign(trees.size(), 0);
  Leaves& leaves = batch.leaves;
  leaves = {std::vector<Ticket>(all), std::vector<NodeId>(all), std::vector<TreeId>(all), std::vector<std::int32_t>(all),
            std::vector<std::uint8_t>(trees.size())};
  if (is_walked())
    walk(batch);
  else
    by_rule([&]<typename Rule, bool kSkips>(Rule, std::bool_constant<kSkips>) { descend<Rule, kSkips>(batch); });
  std::size_t size = 0;
  for (std::size_t row = 0; row < trees.size(); ++row)
    for (std::size_t at = row * n; at < row * n + batch.found[row]; ++at, ++size) {
      leaves.node[size] = leaves.node[at];
      leaves.depth[size] = leaves.depth[at];
      leaves.tree[size] = trees[row];
      leaves.ticket[size] = open_rollout(trees[row], leaves.node[size]);
    }
  leaves.ticket.resize(size), leaves.node.resize(size), leaves.tree.resize(size), leaves.depth.resize(size);
  return std::move(leaves);
}

std::optional<Leaf> Forest::ask_one(TreeId id) {
  Tree& tree = live_tree(id);
  Slot* here = &slot(tree.root);
  if (link::is_exhausted(here->link)) return {};
  if (here->visits_started == kMaxRollouts) ask(std::span(&id, 1), 1);  // throws
  reserve_rollouts(1);
  if (is_walked()) {
    const Found found = walk_one(id, false);
    if (found.status != AskStatus::kOk) return {};
    return Leaf{open_rollout(id, found.node), found.node};
  }
  NodeId node = tree.root;
  by_rule([&]<typename Rule, bool kSkips>(Rule, std::bool_constant<kSkips>) {
    while (true) {
      ++here->visits_started;
      if (link::is_leaf(here->link)) return;
      node = select_child<Rule, kSkips>(*here);
      here = &slot(node);
    }
  });
  if ((here->link & link::kPending) != 0) {
    unstart(node);
    return {};
  }
  here->link += link::kPendingOne;
  return Leaf{open_rollout(id, node), node};
}

}  // namespace agentq
