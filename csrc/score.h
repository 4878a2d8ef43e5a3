// The scores that selection maximises. Owns only the formulas.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace agentq {

/// UCB1 score of one edge (h, a); selection takes the edge with the largest.
///
///     Q(h, a) + c_exp * sqrt( ln max(1, N(h)) ) / sqrt( 1 + N(h, a) )
///
/// @param mean_value          Q(h, a), in reward units: [0, 1] for a success reward.
/// @param parent_visit_count  N(h) = sum over a of N(h, a), at least 0; 0 counts as 1, since ln 0 is not finite (ours).
/// @param visit_count         N(h, a), at least 0; include rollouts in flight, which spreads parallel rollouts out.
/// @param c_exp               exploration constant, at least 0, in reward units.
/// @return  a finite score, in reward units.
/// @throws  std::invalid_argument if a count is negative, mean_value or c_exp is not finite, or c_exp < 0.
///
/// Source: Putta et al. 2024, arXiv:2408.07199, eq. 7; the `1 +` is theirs. Auer et al. 2002 divide by N(h, a) and try
/// every action once.
double ucb1_score(double mean_value, std::int64_t parent_visit_count, std::int64_t visit_count, double c_exp);

/// Functions of a visit count that scores need, tabulated below `kSize` to avoid divisions and roots during descent.
/// Larger counts use the same expressions, so the size of the table changes no score.
class CountTable {
 public:
  static constexpr std::uint64_t kSize = 1 << 14;

  struct Edge {
    double reciprocal;  // 1 / max(1, n)
    double spread;      // 1 / sqrt(1 + n)
  };

  static const CountTable& instance() {
    static const CountTable table;
    return table;
  }

  Edge edge(std::uint64_t n) const noexcept { return n < kSize ? tabled_edge(n) : edge_of(n); }
  /// The same for n below kSize.
  Edge tabled_edge(std::uint64_t n) const noexcept { return {reciprocal_[n], spread_[n]}; }
  /// sqrt(ln max(1, n))
  double root_log(std::uint64_t n) const noexcept { return n < kSize ? root_log_[n] : root_log_of(n); }

 private:
  CountTable() {
    for (std::uint64_t n = 0; n < kSize; ++n) {
      reciprocal_[n] = edge_of(n).reciprocal;
      spread_[n] = edge_of(n).spread;
      root_log_[n] = root_log_of(n);
    }
  }

  static Edge edge_of(std::uint64_t n) noexcept {
    return {1.0 / static_cast<double>(n > 0 ? n : 1), 1.0 / std::sqrt(1.0 + static_cast<double>(n))};
  }
  static double root_log_of(std::uint64_t n) noexcept {
    return std::sqrt(std::log(static_cast<double>(n > 0 ? n : 1)));
  }

  std::array<double, kSize> reciprocal_, spread_, root_log_;  // separate: x86 can scale an index by 8 but not by 16
};

/// Each rule scores an edge from Q(h, a), its visit count n = N(h, a), and the factor that `scale` computes from the
/// node's N(h) = sum over a of N(h, a). Both counts include rollouts in flight. `prior` is P(a | h), used by PUCT only.

/// Q + c * sqrt(ln N(h)) / sqrt(1 + n). Agent Q, arXiv:2408.07199, eq. 7.
struct Ucb1 {
  static constexpr bool kNeedsPrior = false, kUnvisitedFirst = false;
  static double scale(const CountTable& table, double c, std::uint64_t parent_visits) noexcept {
    return c * table.root_log(parent_visits);
  }
  static double score(const CountTable&, double mean, double scale, const CountTable::Edge& edge, std::uint32_t,
                      float) noexcept {
    return mean + scale * edge.spread;
  }
};

/// Q + c * sqrt(ln N(h) / n); an edge without visits goes first. Kocsis and Szepesvari 2006, c = 2 C_p.
struct Uct {
  static constexpr bool kNeedsPrior = false, kUnvisitedFirst = true;
  static double scale(const CountTable& table, double c, std::uint64_t parent_visits) noexcept {
    return c * table.root_log(parent_visits);
  }
  static double score(const CountTable& table, double mean, double scale, const CountTable::Edge&, std::uint32_t n,
                      float) noexcept {
    return mean + scale * table.edge(n > 0 ? n - 1 : 0).spread;
  }
};

/// Q + c * P(a | h) * sqrt(max(1, N(h))) / (1 + n). Silver et al. 2017, "Mastering the game of Go without human
/// knowledge"; the 1 under the root is ours and makes the first choice follow the prior.
struct Puct {
  static constexpr bool kNeedsPrior = true, kUnvisitedFirst = false;
  static double scale(const CountTable&, double c, std::uint64_t parent_visits) noexcept {
    return c * std::sqrt(static_cast<double>(parent_visits > 0 ? parent_visits : 1));
  }
  static double score(const CountTable& table, double mean, double scale, const CountTable::Edge&, std::uint32_t n,
                      float prior) noexcept {
    return mean + scale * static_cast<double>(prior) * table.edge(std::uint64_t{n} + 1).reciprocal;
  }
};

}  // namespace agentq
