// Preference pairs out of the forest's statistics.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "csrc/forest.h"

namespace agentq {
namespace {

struct Candidate {
  NodeId id;
  double value;  // Q = alpha * W / N + (1 - alpha) * critic_value
};

struct Pair {
  NodeId chosen, rejected;
  double gap;
};

bool comes_first(const Pair& a, const Pair& b) {
  if (a.gap != b.gap) return a.gap > b.gap;
  if (a.chosen != b.chosen) return a.chosen < b.chosen;
  return a.rejected < b.rejected;
}

void check(const PairQuery& query) {
  if (!(query.alpha >= 0 && query.alpha <= 1))
    throw std::invalid_argument("alpha must be in [0, 1]; got " + std::to_string(query.alpha));
  if (!std::isfinite(query.threshold) || query.threshold < 0)
    throw std::invalid_argument("threshold must be finite and at least 0; got " + std::to_string(query.threshold));
}

std::vector<Pair> pairs_of(const std::vector<Candidate>& candidates, const PairQuery& query) {
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    for (std::size_t j = i + 1; j < candidates.size(); ++j) {
      const Candidate &a = candidates[i], &b = candidates[j];
      const double gap = std::fabs(a.value - b.value);
      if (gap > 0 && gap >= query.threshold)
        pairs.push_back(a.value > b.value ? Pair{a.id, b.id, gap} : Pair{b.id, a.id, gap});
    }
  std::sort(pairs.begin(), pairs.end(), comes_first);
  if (query.max_pairs_per_node > 0 && pairs.size() > query.max_pairs_per_node)
    pairs.resize(query.max_pairs_per_node);
  return pairs;
}

}  // namespace

Pairs Forest::pairs(const PairQuery& query, std::optional<std::span<const TreeId>> only) const {
  check(query);
  const std::vector<TreeId> wanted = only ? std::vector<TreeId>(only->begin(), only->end()) : trees();
  for (const TreeId tree : wanted) live_tree(tree);
  const Counts counts = in_flight();
  std::vector<Candidate> candidates;
  Pairs out;
  for (const TreeId tree : wanted)
    for (const NodeId node : below(root(tree))) {
      const std::uint32_t width = children_of(node);
      if (width < 2) continue;
      candidates.clear();
      for_children(link::block(slot(node).link), [&](NodeId child) {
        const std::uint32_t visits = slot(child).started - count_of(counts, child);
        if (visits < query.min_visits) return;
        const double value = visits == 0 ? 0.0 : config_.backup == Backup::kMax ? slot(child).value_sum
                                                                               : slot(child).value_sum / visits;
        candidates.push_back({child, query.alpha * value + (1.0 - query.alpha) * static_cast<double>(at(critic_, child))});
      });
      for (const Pair& pair : pairs_of(candidates, query)) {
        out.node.push_back(node);
        out.chosen.push_back(pair.chosen);
        out.rejected.push_back(pair.rejected);
        out.gap.push_back(pair.gap);
      }
    }
  return out;
}

}  // namespace agentq
