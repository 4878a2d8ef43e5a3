// The score that selection maximises. Owns the formula and nothing else.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace agentq {

/// UCB1 score of one edge (h, a); selection takes the edge with the largest.
///
///     Q(h, a) + c_exp * sqrt( ln max(1, N(h)) ) / sqrt( 1 + N(h, a) )
///
/// @param mean_value   Q(h, a), in reward units: [0, 1] for a success reward.
/// @param node_visits  N(h) = sum over a of N(h, a), at least 0; 0 counts as 1, for ln 0 is not finite (ours).
/// @param edge_visits  N(h, a), at least 0; count in-flight rollouts in, so that parallel rollouts spread out.
/// @param c_exp        exploration constant, at least 0, in reward units.
/// @return  a finite score, in reward units.
/// @throws  std::invalid_argument if a count is negative, mean_value or c_exp is not finite, or c_exp < 0.
///
/// Source: Putta et al. 2024, arXiv:2408.07199, eq. 7; the `1 +` is theirs. Auer et al. 2002 divide by N(h, a) and try
/// every action once.
double ucb1_score(double mean_value, std::int64_t node_visits, std::int64_t edge_visits, double c_exp);

/// `ucb1_score` without its checks, from its parts: scale = c_exp * sqrt(ln max(1, N(h))) is the same for all edges of a
/// node, spread is 1 / sqrt(1 + N(h, a)).
inline double ucb1(double mean_value, double scale, double spread) noexcept { return mean_value + scale * spread; }

/// What scores need of a count, without a division or a root while descending: `reciprocal(n)` is 1 / max(1, n),
/// `spread(n)` is 1 / sqrt(1 + n), `root_log(n)` is sqrt(ln max(1, n)). By table up to `kSize`, computed beyond: the same
/// expressions, so where the table ends changes no score.
class CountTable {
 public:
  static constexpr std::uint64_t kSize = 1 << 14;

  static const CountTable& instance() {
    static const CountTable table;
    return table;
  }

  double reciprocal(std::uint64_t n) const noexcept { return n < kSize ? edges_[n].reciprocal : reciprocal_of(n); }
  double spread(std::uint64_t n) const noexcept { return n < kSize ? edges_[n].spread : spread_of(n); }
  double root_log(std::uint64_t n) const noexcept { return n < kSize ? root_log_[n] : root_log_of(n); }

 private:
  struct Edge {
    double reciprocal, spread;
  };

  CountTable() {
    for (std::uint64_t n = 0; n < kSize; ++n) {
      edges_[n] = {reciprocal_of(n), spread_of(n)};
      root_log_[n] = root_log_of(n);
    }
  }

  static double reciprocal_of(std::uint64_t n) noexcept { return 1.0 / static_cast<double>(n > 0 ? n : 1); }
  static double spread_of(std::uint64_t n) noexcept { return 1.0 / std::sqrt(1.0 + static_cast<double>(n)); }
  static double root_log_of(std::uint64_t n) noexcept {
    return std::sqrt(std::log(static_cast<double>(n > 0 ? n : 1)));
  }

  std::array<Edge, kSize> edges_;
  std::array<double, kSize> root_log_;
};

}  // namespace agentq
