// Which leaves come next: descent by a score. sampled.cc and best_first.cc choose for the other rules.
#include <algorithm>
#include <array>
#include <stdexcept>
#include <type_traits>

#include "csrc/check.h"
#include "csrc/forest.h"

namespace agentq {

/// Calls `go` with the selection rule, whether Q is the plain mean, and whether nodes can be exhausted: what the descent is
/// compiled for.
template <typename Go>
void Forest::by_rule(Go&& go) const {
  const bool plain = config_.backup == Backup::kMean && config_.alpha == 1.0 && !config_.transpositions;
  const auto with = [&](auto rule) {
    const auto skips = [&](auto is_plain) {
      config_.exhaust ? go(rule, is_plain, std::true_type{}) : go(rule, is_plain, std::false_type{});
    };
    plain ? skips(std::true_type{}) : skips(std::false_type{});
  };
  switch (config_.selection) {
    case Selection::kUcb1: return with(Ucb1{});
    case Selection::kUct: return with(Uct{});
    case Selection::kPuct: return with(Puct{});
    default: return;  // chosen leaf by leaf
  }
}

/// The child that selection takes: the largest score; ties by fewer rollouts started, then by lower index.
/// Exhausted children are passed over (no flag is ever set unless config.exhaust); one child at least is not.
/// kTabled: no child has more rollouts than the table of scores; a test of each child would be 5 % of a simulation.
template <typename Rule, bool kPlain, bool kSkips, bool kTabled>
[[gnu::always_inline]] inline NodeId Forest::best_child(NodeId block, std::uint32_t node_visits,
                                                        const State* states) const noexcept {
  const CountTable& table = *table_;
  const double scale = Rule::scale(table, config_.c_exp, node_visits);
  const bool first_unvisited = config_.unvisited == Unvisited::kFirst;
  const auto score_of = [&](NodeId child) {
    const Slot& edge = slot(child);
    const CountTable::Edge counted = kTabled ? table.tabled_edge(edge.started) : table.edge(edge.started);
    double value = edge.value_sum * counted.reciprocal;
    if constexpr (!kPlain) {
      double sum = edge.value_sum, reciprocal = counted.reciprocal;
      if (const std::uint32_t state = states != nullptr ? state_of(child) : 0; state != 0)
        sum = states[state - 1].value_sum, reciprocal = table.edge(states[state - 1].started).reciprocal;
      value = config_.backup == Backup::kMean ? sum * reciprocal : sum == kNothing ? 0.0 : sum;
      value = config_.alpha * value + (1.0 - config_.alpha) * static_cast<double>(at(critic_, child));
    }
    const float prior = Rule::kNeedsPrior ? at(prior_, child) : 0.0f;
    return Rule::score(table, value, scale, counted, edge.started, prior);
  };

  // Which child is better cannot be predicted, so the loop has no branch on it; ties, which are rare, get a second one.
  NodeId best = block;
  double best_score = kNothing, second = kNothing;  // second: as large as the best one only if there is a tie
  const bool all_tie = kPlain && !Rule::kNeedsPrior && node_visits == 0;
  if (all_tie && !kSkips) return block + 1;
  NodeId run = block;
  do {
    const NodeId end = run + 1 + header(run).width;
    for (NodeId child = run + 1; child < end; ++child) {
      const Slot& edge = slot(child);
      if (kSkips && link::is_exhausted(edge.link)) continue;
      if (all_tie || (first_unvisited && edge.started == 0)) return child;
      const double score = score_of(child);
      const double lesser = score < best_score ? score : best_score;
      second = lesser > second ? lesser : second;
      best = score > best_score ? child : best;
      best_score = score > best_score ? score : best_score;
    }
    run = header(run).next;
  } while (run != 0);
  // Mostly nobody has visited those that tie: the first of them is the one, without a second loop (5 %).
  if ((best != block) & ((second < best_score) | (slot(best).started == 0))) [[likely]] return best;
  const bool none = best == block;  // sums of huge returns have made every score infinite or no number
  std::uint32_t fewest = none ? kMaxRollouts : slot(best).started;
  for_children(block, [&](NodeId child) {
    const Slot& edge = slot(child);
    if (link::is_exhausted(edge.link) || (none && best != block)) return;
    if (!none && (edge.started >= fewest || score_of(child) != best_score)) return;
    best = child;
    fewest = edge.started;
  });
  return best;
}

/// The child of an inner node, a rollout through which has been counted at the node itself.
template <typename Rule, bool kPlain, bool kSkips>
[[gnu::always_inline]] inline NodeId Forest::select_child(const Slot& node, const State* states) const noexcept {
  const NodeId block = link::block(node.link);
  const std::uint32_t node_visits = node.started - 1 - header(block).here;
  return node.started < CountTable::kSize ? best_child<Rule, kPlain, kSkips, true>(block, node_visits, states)
                                          : best_child<Rule, kPlain, kSkips, false>(block, node_visits, states);
}

Ticket Forest::open_rollout(TreeId tree, NodeId node) noexcept {
  std::uint32_t index = free_rollout_;
  if (index != kNoNode) {
    free_rollout_ = rollouts_[index].node;
    --free_rollouts_;
  } else {
    index = static_cast<std::uint32_t>(rollouts_.size());
    rollouts_.emplace_back();  // ask has reserved
  }
  const Ticket ticket = ticket::of(numbers_.next(), index);
  rollouts_[index] = {ticket, node, tree};
  ++trees_[static_cast<std::size_t>(tree)].open;
  return ticket;
}

/// A descent has come to a leaf: it waits there, or it is undone where one waits already.
[[gnu::always_inline]] inline void Forest::arrive(Batch& batch, Lane lane, std::int32_t depth) noexcept {
  const auto [node, row] = lane;
  Slot& leaf = slot(node);
  if ((leaf.link & link::kPending) != 0) {
    batch.leaves.status[row] = static_cast<std::uint8_t>(AskStatus::kBlocked);
    unstart(node);
    return;
  }
  leaf.link += link::kPendingOne;
  if (state_) count_states(batch.trees[row], node, 1);
  const std::size_t at = batch.from[row] + batch.found[row]++;
  batch.leaves.node[at] = node;
  batch.leaves.depth[at] = depth;
}

/// Trees go down side by side, a level at a time, so that the memory of one is fetched while others choose. A row of the
/// batch writes to its own tree and its own places alone.
template <typename Rule, bool kPlain, bool kSkips>
void Forest::descend(Batch& batch, Rows rows) noexcept {
  const std::span<const TreeId> trees = batch.trees;
  std::vector<std::uint8_t>& status = batch.leaves.status;
  std::array<Lane, kLanes> lanes, arrived;
  for (std::size_t begin = rows.first; begin < rows.last; begin += kLanes)
    for (std::size_t round = 0; round < batch.most; ++round) {
      std::size_t inner = 0, there = 0;
      // How deep a tree goes cannot be predicted: leaves and inner nodes are parted without a branch.
      const auto part = [&](NodeId node, std::uint32_t row) {
        const bool leaf = link::is_leaf(slot(node).link);
        arrived[there] = lanes[inner] = {node, row};
        there += leaf, inner += !leaf;
      };
      for (std::size_t row = begin; row < std::min(begin + kLanes, rows.last); ++row) {
        if (round >= batch.quotas[row] || status[row] != static_cast<std::uint8_t>(AskStatus::kOk)) continue;
        const NodeId root = trees_[static_cast<std::size_t>(trees[row])].root;
        if (link::is_exhausted(slot(root).link)) {
          status[row] = static_cast<std::uint8_t>(AskStatus::kExhausted);
          continue;
        }
        ++slot(root).started;
        part(root, static_cast<std::uint32_t>(row));
      }
      for (std::int32_t depth = 0;; ++depth) {
        for (std::size_t i = 0; i < there; ++i) arrive(batch, arrived[i], depth);
        if (inner == 0) break;
        const std::size_t count = inner;
        inner = there = 0;
        for (std::size_t i = 0; i < count; ++i) {
          const Lane lane = lanes[i];
          const NodeId child = select_child<Rule, kPlain, kSkips>(
              slot(lane.node), kPlain ? nullptr : shared_states(trees[lane.row]));
          Slot& edge = slot(child);
          ++edge.started;
          const Cell* next = cells_ + (link::is_leaf(edge.link) ? child : link::block(edge.link));
          __builtin_prefetch(next);
          __builtin_prefetch(next + 4);
          part(child, lane.row);
        }
      }
    }
}

/// Leaf by leaf, for the rules that do not go down side by side.
void Forest::walk(Batch& batch, Rows rows) noexcept {
  for (std::size_t row = rows.first; row < rows.last; ++row)
    for (std::uint32_t i = 0; i < batch.quotas[row]; ++i) {
      const Found found = walk_one(batch.trees[row], i > 0);
      batch.leaves.status[row] = static_cast<std::uint8_t>(found.status);
      if (found.status != AskStatus::kOk) break;
      const std::size_t at = batch.from[row] + batch.found[row]++;
      batch.leaves.node[at] = found.node;
      batch.leaves.depth[at] = found.depth;
    }
}

/// Tickets for so many more rollouts can be had without an exception.
void Forest::reserve_rollouts(std::size_t more) {
  if (more <= free_rollouts_) return;
  const std::size_t want = rollouts_.size() + more - free_rollouts_;
  if (want > ticket::kMost)
    throw std::invalid_argument("at most " + std::to_string(ticket::kMost) + " rollouts must be in flight at once; got " +
                                std::to_string(want) + " with those asked for");
  if (want > rollouts_.capacity()) rollouts_.reserve(std::max({want, 2 * rollouts_.capacity(), std::size_t{64}}));
}

Leaves Forest::ask(std::span<const TreeId> trees, std::size_t n) {
  if (n < 1) throw std::invalid_argument("n must be at least 1; got 0");
  quotas_.assign(trees.size(), static_cast<std::uint32_t>(std::min<std::size_t>(n, kMaxRollouts)));
  return ask(trees, quotas_);
}

/// Leaves of every tree, found side by side, then tickets for them in the order of the trees: neither the leaves nor the
/// tickets depend on the number of threads.
Leaves Forest::ask(std::span<const TreeId> trees, std::span<const std::uint32_t> quotas) {
  check_length("quotas", quotas.size(), "tree", trees.size());
  Batch& batch = batch_;  // used again: three allocations are 4 % of a small call
  batch.trees = trees, batch.quotas = quotas, batch.most = 0;
  batch.from.assign(trees.size() + 1, 0), batch.found.assign(trees.size(), 0);
  ++asks_;
  for (std::size_t row = 0; row < trees.size(); ++row) {
    Tree& tree = live_tree(trees[row]);
    if (tree.stamp == asks_)
      throw std::invalid_argument("a tree must be listed once a call; got tree " + std::to_string(trees[row]) + " twice");
    tree.stamp = asks_;
    if (slot(tree.root).started > kMaxRollouts - quotas[row])
      throw std::invalid_argument("a tree must have at most " + std::to_string(kMaxRollouts) + " rollouts; tree " +
                                  std::to_string(trees[row]) + " would have more");
    batch.from[row + 1] = batch.from[row] + quotas[row];
    batch.most = std::max(batch.most, quotas[row]);
  }
  const std::size_t all = batch.from.back();
  gather(all);
  reserve_rollouts(all);
  Leaves& leaves = batch.leaves;
  leaves = {std::vector<Ticket>(all), std::vector<NodeId>(all), std::vector<TreeId>(all), std::vector<std::int32_t>(all),
            std::vector<std::uint8_t>(trees.size())};
  split(trees.size(), all, [&](Rows rows) {
    if (is_walked()) return walk(batch, rows);
    by_rule([&]<typename Rule, bool kPlain, bool kSkips>(Rule, std::bool_constant<kPlain>, std::bool_constant<kSkips>) {
      descend<Rule, kPlain, kSkips>(batch, rows);
    });
  });
  std::size_t size = 0;
  for (std::size_t row = 0; row < trees.size(); ++row)
    for (std::size_t at = batch.from[row]; at < batch.from[row] + batch.found[row]; ++at, ++size) {
      leaves.node[size] = leaves.node[at];
      leaves.depth[size] = leaves.depth[at];
      leaves.tree[size] = trees[row];
      leaves.ticket[size] = open_rollout(trees[row], leaves.node[size]);
    }
  leaves.ticket.resize(size), leaves.node.resize(size), leaves.tree.resize(size), leaves.depth.resize(size);
  return std::move(leaves);
}

Forest::One Forest::ask_one(TreeId id) {
  Tree& tree = live_tree(id);
  Slot* here = &slot(tree.root);
  if (link::is_exhausted(here->link)) return {AskStatus::kExhausted, 0, kNoNode};
  if (here->started == kMaxRollouts) ask(std::span(&id, 1), 1);  // says so
  reserve_rollouts(1);
  if (is_walked()) {
    const auto [status, node, depth] = walk_one(id, false);
    return {status, status == AskStatus::kOk ? open_rollout(id, node) : 0, node};
  }
  NodeId node = tree.root;
  const auto go = [&]<typename Rule, bool kPlain, bool kSkips>(Rule, std::bool_constant<kPlain>,
                                                                std::bool_constant<kSkips>) {
    while (true) {
      ++here->started;
      if (link::is_leaf(here->link)) return;
      node = select_child<Rule, kPlain, kSkips>(*here, kPlain ? nullptr : shared_states(id));
      here = &slot(node);
    }
  };
  by_rule(go);
  if ((here->link & link::kPending) != 0) {
    unstart(node);
    return {AskStatus::kBlocked, 0, kNoNode};
  }
  here->link += link::kPendingOne;
  if (state_) count_states(id, node, 1);
  return {AskStatus::kOk, open_rollout(id, node), node};
}

}  // namespace agentq
