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

  /// The same functions, only for counts below kSize.
  class Tabled {
   public:
    explicit Tabled(const CountTable& table) noexcept : table_(table) {}
    double reciprocal(std::uint64_t n) const noexcept { return table_.reciprocal_[n]; }
    double spread(std::uint64_t n) const noexcept { return table_.spread_[n]; }
    double root_log(std::uint64_t n) const noexcept { return table_.root_log_[n]; }

   private:
    const CountTable& table_;
  };

  static const CountTable& instance() {
    static const CountTable table;
    return table;
  }

  /// 1 / max(1, n)
  double reciprocal(std::uint64_t n) const noexcept { return n < kSize ? reciprocal_[n] : reciprocal_of(n); }
  /// 1 / sqrt(1 + n)
  double spread(std::uint64_t n) const noexcept { return n < kSize ? spread_[n] : spread_of(n); }
  /// sqrt(ln max(1, n))
  double root_log(std::uint64_t n) const noexcept { return n < kSize ? root_log_[n] : root_log_of(n); }

 private:
  CountTable() {
    for (std::uint64_t n = 0; n < kSize; ++n) {
      reciprocal_[n] = reciprocal_of(n);
      spread_[n] = spread_of(n);
      root_log_[n] = root_log_of(n);
    }
  }

  static double reciprocal_of(std::uint64_t n) noexcept { return 1.0 / static_cast<double>(n > 0 ? n : 1); }
  static double spread_of(std::uint64_t n) noexcept { return 1.0 / std::sqrt(1.0 + static_cast<double>(n)); }
  static double root_log_of(std::uint64_t n) noexcept {
    return std::sqrt(std::log(static_cast<double>(n > 0 ? n : 1)));
  }

  std::array<double, kSize> reciprocal_, spread_, root_log_;  // separate: x86 can scale an index by 8 but not by 16
};

/// Two numbers that the processor computes with at once.
using Pair [[gnu::vector_size(16)]] = double;

/// Q(h, a) of an edge with mean return W / N and a critic's value, all in reward units:
///
///     Q(h, a) = alpha * W / N + (1 - alpha) * critic value
///
/// W / N is 0 of an edge without visits, so until its first return Q is the critic's share alone. The value of an edge
/// that was given none is 0. agentq.credit.pairs.blended_values is the same, where the critic ranks.
///
/// Source: Putta et al. 2024, arXiv:2408.07199, eq. 10. They use it for pairs; for selection it is ours.
inline auto blended(auto mean, auto critic, auto alpha, auto rest) noexcept { return alpha * mean + rest * critic; }

/// Each rule scores an edge from Q(h, a), `factor` of its visit count n = N(h, a), and `scale`, which is computed from
/// the node's N(h) = sum over a of N(h, a). Both counts include rollouts in flight. `prior` is P(a | h), used by PUCT
/// only. `score` takes doubles or pairs.
struct Plain {
  static constexpr bool kBlends = false, kNeedsPrior = false, kUnvisitedFirst = false;
};

/// The same rule with a critic's share in Q(h, a); the rule itself has alpha = 1, which is Q = W / N.
template <typename Of>
struct Blended : Of {
  static constexpr bool kBlends = true;
};

/// Q + c * sqrt(ln N(h)) / sqrt(1 + n). Agent Q, arXiv:2408.07199, eq. 7.
struct Ucb1 : Plain {
  static double scale(const auto& table, double c, std::uint64_t parent_visits) noexcept {
    return c * table.root_log(parent_visits);
  }
  static double factor(const auto& table, std::uint32_t n) noexcept { return table.spread(n); }
  static auto score(auto mean, auto scale, auto factor, auto) noexcept { return mean + scale * factor; }
};

/// Q + c * sqrt(ln N(h) / n); an edge without visits goes first. Kocsis and Szepesvari 2006, c = 2 C_p.
struct Uct : Plain {
  static constexpr bool kUnvisitedFirst = true;
  static double scale(const auto& table, double c, std::uint64_t parent_visits) noexcept {
    return c * table.root_log(parent_visits);
  }
  static double factor(const auto& table, std::uint32_t n) noexcept { return table.spread(n > 0 ? n - 1 : 0); }
  static auto score(auto mean, auto scale, auto factor, auto) noexcept { return mean + scale * factor; }
};

/// Q + c * P(a | h) * sqrt(max(1, N(h))) / (1 + n). Silver et al. 2017, "Mastering the game of Go without human
/// knowledge"; the 1 under the root is ours and makes the first choice follow the prior.
struct Puct : Plain {
  static constexpr bool kNeedsPrior = true;
  static double scale(const auto&, double c, std::uint64_t parent_visits) noexcept {
    return c * std::sqrt(static_cast<double>(parent_visits > 0 ? parent_visits : 1));
  }
  static double factor(const auto& table, std::uint32_t n) noexcept { return table.reciprocal(std::uint64_t{n} + 1); }
  static auto score(auto mean, auto scale, auto factor, auto prior) noexcept { return mean + scale * prior * factor; }
};

}  // namespace agentq
