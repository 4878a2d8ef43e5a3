// Random numbers that depend only on a key: the same on every machine and thread, in any order of trees.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace agentq {

/// The finaliser of SplitMix64 (Steele, Lea and Flood 2014): flipping one bit of the key flips about half of the
/// result.
inline constexpr std::uint64_t mixed(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/// One stream: SplitMix64 from a key.
class Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t tree, std::uint64_t number) noexcept
      : state_(mixed(mixed(mixed(seed) + tree) + number)) {}

  /// Uniform in (0, 1), never 0 or 1.
  double uniform() noexcept {
    state_ += 0x9E3779B97F4A7C15u;
    return (static_cast<double>(mixed(state_) >> 11) + 0.5) * 0x1p-53;
  }

  /// Standard Gumbel.
  double gumbel() noexcept { return -std::log(-std::log(uniform())); }

  /// Standard normal. Box and Muller 1958; the second of the pair is not used.
  double normal() noexcept {
    const double radius = std::sqrt(-2.0 * std::log(uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

  /// Gamma with shape `a` > 0 and scale 1. Marsaglia and Tsang 2000; below 1 as Gamma(a + 1) * U^(1 / a).
  double gamma(double a) noexcept {
    if (a < 1.0) {
      const double above = gamma(a + 1.0);
      return above * std::pow(uniform(), 1.0 / a);
    }
    const double d = a - 1.0 / 3.0, c = 1.0 / std::sqrt(9.0 * d);
    while (true) {
      const double x = normal(), t = 1.0 + c * x;
      if (t <= 0.0) continue;
      const double v = t * t * t;
      if (std::log(uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
    }
  }

  /// Beta(a, b).
  double beta(double a, double b) noexcept {
    const double x = gamma(a), y = gamma(b);
    return x / (x + y);
  }

 private:
  std::uint64_t state_;
};

}  // namespace agentq
