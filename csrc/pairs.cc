// Preference pairs out of the forest's statistics.
#include <algorithm>
#include <cmath>
#include <queue>
#include <stdexcept>
#include <string>

#include "csrc/check.h"
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

/// The pairs of one node. Its candidates lie with the largest value first, so that the gap grows to the right and shrinks
/// downwards: row i pairs candidate i with those behind it, and those it pairs with begin at a column that never goes back.
class Siblings {
 public:
  /// @param candidates  no value that is not a number.
  Siblings(std::vector<Candidate>& candidates, double threshold) : by_value_(candidates), first_(candidates.size()) {
    std::sort(by_value_.begin(), by_value_.end(), [](const Candidate& a, const Candidate& b) { return a.value > b.value; });
    std::size_t column = 0;
    for (std::size_t row = 0; row < size(); ++row) {
      const auto is_pair = [&](std::size_t to) { return gap(row, to) > 0 && gap(row, to) >= threshold; };
      column = std::max(column, row + 1);
      while (column < size() && !is_pair(column)) ++column;
      first_[row] = column;
      count_ += size() - column;
    }
  }

  std::uint64_t count() const { return count_; }

  /// The first `most` of them in order. Time and memory follow the candidates and `most`, not the pairs.
  std::vector<Pair> first(std::uint64_t most) const {
    std::vector<Pair> pairs;
    pairs.reserve(std::min(most, count_));
    if (most >= count_) {
      for (std::size_t row = 0; row < size(); ++row)
        for (std::size_t column = first_[row]; column < size(); ++column) pairs.push_back(pair(row, column));
    } else if (most > 0) {
      largest(most, pairs);
      const double least = pairs.back().gap;
      while (!pairs.empty() && pairs.back().gap == least) pairs.pop_back();
      add_equal(least, most, pairs);
    }
    std::sort(pairs.begin(), pairs.end(), comes_first);
    return pairs;
  }

 private:
  std::size_t size() const { return by_value_.size(); }
  double gap(std::size_t row, std::size_t column) const { return by_value_[row].value - by_value_[column].value; }
  Pair pair(std::size_t row, std::size_t column) const {
    return {by_value_[row].id, by_value_[column].id, gap(row, column)};
  }

  /// `most` pairs with the largest gaps, those of one gap in any order: each row from the right, the best row first.
  void largest(std::uint64_t most, std::vector<Pair>& out) const {
    struct Next {
      double gap;
      std::size_t row, column;
      bool operator<(const Next& other) const { return gap < other.gap; }
    };
    std::priority_queue<Next> rows;
    const std::size_t last = size() - 1;
    rows.push({gap(0, last), 0, last});
    while (out.size() < most) {
      const auto [gap_here, row, column] = rows.top();
      rows.pop();
      out.push_back(pair(row, column));
      if (column == last && row + 1 < size() && first_[row + 1] <= last) rows.push({gap(row + 1, last), row + 1, last});
      if (column > first_[row]) rows.push({gap(row, column - 1), row, column - 1});
    }
  }

  /// Of the pairs with that very gap those with the lowest ids, until there are `most`.
  void add_equal(double least, std::uint64_t most, std::vector<Pair>& pairs) const {
    std::vector<std::size_t> rows(size());
    for (std::size_t row = 0; row < size(); ++row) rows[row] = row;
    std::sort(rows.begin(), rows.end(), [&](std::size_t a, std::size_t b) { return by_value_[a].id < by_value_[b].id; });
    std::vector<NodeId> rejected;
    for (const std::size_t row : rows) {
      if (pairs.size() == most) return;
      const auto begin = by_value_.begin() + static_cast<std::ptrdiff_t>(first_[row]);
      const auto has_less = [&](const Candidate& other, double than) { return by_value_[row].value - other.value < than; };
      const auto has_more = [&](double than, const Candidate& other) { return than < by_value_[row].value - other.value; };
      const auto from = std::lower_bound(begin, by_value_.end(), least, has_less);
      const auto to = std::upper_bound(from, by_value_.end(), least, has_more);
      rejected.clear();
      for (auto other = from; other != to; ++other) rejected.push_back(other->id);
      if (const std::uint64_t left = most - pairs.size(); rejected.size() > left) {
        std::nth_element(rejected.begin(), rejected.begin() + static_cast<std::ptrdiff_t>(left), rejected.end());
        rejected.resize(left);
      }
      for (const NodeId id : rejected) pairs.push_back({by_value_[row].id, id, least});
    }
  }

  std::vector<Candidate>& by_value_;
  std::vector<std::size_t> first_;  // of each row: the first candidate that it makes a pair with
  std::uint64_t count_ = 0;
};

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
        const double told = visits == 0 ? 0.0 : config_.backup == Backup::kMax ? slot(child).value_sum
                                                                              : slot(child).value_sum / visits;
        const double value = query.alpha * told + (1.0 - query.alpha) * static_cast<double>(at(critic_, child));
        if (!std::isnan(value)) candidates.push_back({child, value});  // sums of huge returns
      });
      const Siblings siblings(candidates, query.threshold);
      const std::uint64_t most = query.max_pairs_per_node > 0 ? query.max_pairs_per_node : siblings.count();
      if (std::min(most, siblings.count()) > kMaxPairs - out.node.size())
        throw std::invalid_argument("a call must return at most " + std::to_string(kMaxPairs) + " pairs; got more at " +
                                    describe(node) + ", which has " + std::to_string(siblings.count()) +
                                    ": give max_pairs_per_node, a larger threshold or fewer trees");
      for (const Pair& pair : siblings.first(most)) {
        out.node.push_back(node);
        out.chosen.push_back(pair.chosen);
        out.rejected.push_back(pair.rejected);
        out.gap.push_back(pair.gap);
      }
    }
  return out;
}

}  // namespace agentq
