// Choosing the next leaves by a score. sampled.cc and best_first.cc implement the other rules.
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "csrc/check.h"
#include "csrc/forest.h"

namespace agentq {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::uint64_t kRows = ~std::uint64_t{0xFFFFFFFF};  // the row of a lane
constexpr double kLowest = std::numeric_limits<double>::lowest();

}  // namespace

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

/// Bit i: scores[i] == score.
[[gnu::always_inline]] inline std::uint32_t equal(Pair scores, double score) noexcept {
#if defined(__SSE2__)
  return static_cast<std::uint32_t>(_mm_movemask_pd(_mm_cmpeq_pd(scores, _mm_set1_pd(score))));
#else
  return std::uint32_t{scores[0] == score} | std::uint32_t{scores[1] == score} << 1;
#endif
}

/// Two numbers from memory, 8 bytes at a time: a load of 16 would wait for stores of 8 that have just been made there.
[[gnu::always_inline]] inline Pair pair_of(const double& a, const double& b) noexcept {
#if defined(__SSE2__)
  return _mm_loadh_pd(_mm_load_sd(&a), &b);
#else
  return Pair{a, b};
#endif
}

/// The larger of each two; a NaN is never the larger.
[[gnu::always_inline]] inline Pair larger(Pair a, Pair b) noexcept {
#if defined(__SSE2__)
  return _mm_max_pd(a, b);
#else
  return a > b ? a : b;
#endif
}

/// The child with the largest score; ties by fewer rollouts started, then by lower index.
/// Exhausted children are skipped (the flag is set only with config.exhaust); at least one child must not be exhausted.
template <typename Rule, bool kSkips>
inline NodeId Forest::best_child(NodeId block, std::uint32_t parent_visits) const noexcept {
  const CountTable& table = *table_;
  const double scale = Rule::scale(table, config_.c_exp, parent_visits);
  const auto score_of = [&](NodeId child) {
    const std::uint32_t n = slot(child).visits_started;
    return Rule::score(slot(child).value_sum * table.reciprocal(n), scale, Rule::factor(table, n),
                       Rule::kNeedsPrior ? static_cast<double>(at(prior_, child)) : 0.0);
  };

  // The better child is unpredictable, so the loop does not branch on it. Ties are rare and take a second loop.
  NodeId best = block;
  double best_score = -kInfinity, second = best_score;  // second equals best_score only in a tie
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
  // Tied children are mostly unvisited: take the first of them and skip the second loop.
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

/// The same for `kWidth` children in one block, all counts in the table: the common case. Children are scored in pairs,
/// the last of an odd number twice. A tree alone is faster with best_child, whose result is ready sooner.
template <typename Rule, bool kSkips, std::uint32_t kWidth>
[[gnu::always_inline]] inline NodeId Forest::best_of(NodeId block, std::uint32_t parent_visits) const noexcept {
  const CountTable::Tabled table(*table_);
  const double scale = Rule::scale(table, config_.c_exp, parent_visits);
  const Slot* const edges = &slot(block + 1);
  const auto adjustment = [](const Slot& edge) {
    if (kSkips && link::is_exhausted(edge.link)) return -kInfinity;
    return Rule::kUnvisitedFirst && edge.visits_started == 0 ? kInfinity : 0.0;
  };
  constexpr std::uint32_t kPairs = (kWidth + 1) / 2;
  Pair scores[kPairs], largest = {kLowest, kLowest};
#pragma GCC unroll 16
  for (std::uint32_t i = 0; i < kPairs; ++i) {
    const std::uint32_t one = 2 * i, two = one + 1 < kWidth ? one + 1 : one;
    const std::uint32_t m = edges[one].visits_started, n = edges[two].visits_started;
    const Pair reciprocals{table.reciprocal(m), table.reciprocal(n)};
    const Pair mean = pair_of(edges[one].value_sum, edges[two].value_sum) * reciprocals;
    Pair prior{};
    if (Rule::kNeedsPrior) prior = Pair{at(prior_, block + 1 + one), at(prior_, block + 1 + two)};
    scores[i] = Rule::score(mean, Pair{scale, scale}, Pair{Rule::factor(table, m), Rule::factor(table, n)}, prior);
    if (kSkips || Rule::kUnvisitedFirst) scores[i] += Pair{adjustment(edges[one]), adjustment(edges[two])};
    largest = larger(scores[i], largest);
  }
  const double top = largest[0] > largest[1] ? largest[0] : largest[1];
  std::uint32_t best = 0;
#pragma GCC unroll 16
  for (std::uint32_t i = 0; i < kPairs; ++i) best |= equal(scores[i], top) << (2 * i);
  if (kWidth % 2 == 1) best &= (1u << kWidth) - 1;
  if (best == 0) [[unlikely]] return best_child<Rule, kSkips>(block, parent_visits);
  const auto first = static_cast<std::uint32_t>(std::countr_zero(best));
  // Tied children are mostly unvisited: take the first of them.
  const std::int32_t is_visited = -static_cast<std::int32_t>(edges[first].visits_started) >> 31;  // 0 or all ones
  if ((best & (best - 1) & static_cast<std::uint32_t>(is_visited)) == 0) [[likely]] return block + 1 + first;
  return best_child<Rule, kSkips>(block, parent_visits);
}

/// The child that selection takes at an inner node. The node's count already includes this rollout.
template <typename Rule, bool kSkips>
[[gnu::always_inline]] inline NodeId Forest::select_child(const Slot& node) const noexcept {
  const NodeId block = link::block(node.link);
  const Header& head = header(block);
  const std::uint32_t visits = node.visits_started - 1 - head.here;
  if ((node.visits_started < CountTable::kSize) & (head.next == 0)) [[likely]]
    switch (head.width) {
      case 1: return block + 1;
      case 2: return best_of<Rule, kSkips, 2>(block, visits);
      case 3: return best_of<Rule, kSkips, 3>(block, visits);
      case 4: return best_of<Rule, kSkips, 4>(block, visits);
      case 5: return best_of<Rule, kSkips, 5>(block, visits);
      case 6: return best_of<Rule, kSkips, 6>(block, visits);
      case 7: return best_of<Rule, kSkips, 7>(block, visits);
      case 8: return best_of<Rule, kSkips, 8>(block, visits);
      default: break;
    }
  return best_child<Rule, kSkips>(block, visits);
}

/// Ends a descent at a leaf: the rollout becomes pending there, or is undone if another is pending already.
[[gnu::always_inline]] inline void Forest::arrive(const Batch& batch, Lane lane, std::int32_t depth) noexcept {
  const NodeId node = static_cast<NodeId>(lane);
  const std::size_t row = lane >> 32;
  Slot& leaf = slot(node);
  if ((leaf.link & link::kPending) != 0) {
    batch.status[row] = static_cast<std::uint8_t>(AskStatus::kBlocked);
    unstart(node);
    return;
  }
  leaf.link += link::kPendingOne;
  const std::size_t at = row * batch.n + batch.found[row]++;
  batch.node[at] = node;
  batch.depth[at] = depth;
}

/// Descends from a node to a leaf. Counts a rollout on the path.
template <typename Rule, bool kSkips>
[[gnu::flatten]] NodeId Forest::descend_one(NodeId node, std::int32_t& depth) noexcept {
  for (depth = 0;; ++depth) {
    Slot& here = slot(node);
    ++here.visits_started;
    if (link::is_leaf(here.link)) return node;
    const NodeId block = link::block(here.link);
    node = best_child<Rule, kSkips>(block, here.visits_started - 1 - header(block).here);
  }
}

/// Descends several trees side by side, level by level: the memory of one is fetched while others choose.
template <typename Rule, bool kSkips>
void Forest::descend(const Batch& batch) noexcept {
  const std::span<const TreeId> trees = batch.trees;
  std::uint8_t* const status = batch.status;
  std::array<Lane, kLanes> lanes, arrived;
  for (std::size_t begin = 0; begin < trees.size(); begin += kLanes)
    for (std::size_t round = 0; round < batch.n; ++round) {
      std::size_t inner = 0, there = 0;
      if (trees.size() == 1) {  // alone, a tree needs no lanes
        const NodeId root = trees_[static_cast<std::size_t>(trees[0])].root;
        if (status[0] != 0 || batch.found[0] == batch.quota[0]) break;
        if (link::is_exhausted(slot(root).link)) {
          status[0] = static_cast<std::uint8_t>(AskStatus::kExhausted);
          break;
        }
        std::int32_t depth;
        const NodeId leaf = descend_one<Rule, kSkips>(root, depth);
        arrive(batch, leaf, depth);
        continue;
      }
      // The depth of a descent is unpredictable, so leaves and inner nodes are separated without a branch.
      const auto part = [&](Lane lane, std::uint32_t word) {
        arrived[there] = lanes[inner] = lane;
        const std::size_t leaf = word >> 31;
        there += leaf, inner += 1 - leaf;
      };
      for (std::size_t row = begin; row < std::min(begin + kLanes, trees.size()); ++row) {
        if (status[row] != static_cast<std::uint8_t>(AskStatus::kOk) || batch.found[row] == batch.quota[row]) continue;
        const NodeId root = trees_[static_cast<std::size_t>(trees[row])].root;
        if (link::is_exhausted(slot(root).link)) {
          status[row] = static_cast<std::uint8_t>(AskStatus::kExhausted);
          continue;
        }
        ++slot(root).visits_started;
        part(row << 32 | root, slot(root).link);
      }
      for (std::int32_t depth = 0;; ++depth) {
        for (std::size_t i = 0; i < there; ++i) arrive(batch, arrived[i], depth);
        if (inner == 0) break;
        const std::size_t count = inner;
        inner = there = 0;
        for (std::size_t i = 0; i < count; ++i) {
          const Lane lane = lanes[i];
          const NodeId child = select_child<Rule, kSkips>(slot(static_cast<NodeId>(lane)));
          Slot& edge = slot(child);
          ++edge.visits_started;
          const Slot* const next = &slot(link::block(edge.link));  // some early cell for a leaf, which does no harm
          __builtin_prefetch(next);
          __builtin_prefetch(next + 4);
          part((lane & kRows) | child, edge.link);
        }
      }
    }
}

/// Finds leaves one at a time, for the rules that do not descend side by side.
void Forest::walk(const Batch& batch) noexcept {
  for (std::size_t row = 0; row < batch.trees.size(); ++row)
    for (std::size_t i = 0; i < batch.n; ++i) {
      const Found found = walk_one(batch.trees[row], i > 0);
      batch.status[row] = static_cast<std::uint8_t>(found.status);
      if (found.status != AskStatus::kOk) break;
      const std::size_t at = row * batch.n + batch.found[row]++;
      batch.node[at] = found.node;
      batch.depth[at] = found.depth;
    }
}

/// Descends to leaves of all trees.
void Forest::find(const Batch& batch) noexcept {
  if (is_walked()) return walk(batch);
  by_rule([&]<typename Rule, bool kSkips>(Rule, std::bool_constant<kSkips>) { descend<Rule, kSkips>(batch); });
}

/// Descends from a root to a leaf by a rule that scores. Counts a rollout on the path.
NodeId Forest::descend_tree(NodeId root) noexcept {
  std::int32_t depth;
  by_rule([&]<typename Rule, bool kSkips>(Rule, std::bool_constant<kSkips>) {
    root = descend_one<Rule, kSkips>(root, depth);
  });
  return root;
}

}  // namespace agentq
