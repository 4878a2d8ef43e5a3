// The score that selection maximises. Owns the formula and nothing else.
#pragma once

#include <cmath>
#include <cstdint>

namespace agentq {

/// UCB1 score of one edge (h, a); selection takes the edge with the largest.
///
///     Q(h, a) + c_exp * sqrt( ln max(1, N(h)) / (1 + N(h, a)) )
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

/// ln max(1, N(h)): the part of the score that all edges of a node share.
inline double log_visits(std::uint64_t node_visits) noexcept {
  return node_visits > 1 ? std::log(static_cast<double>(node_visits)) : 0.0;
}

/// `ucb1_score` without its checks, from the shared part.
inline double ucb1(double mean_value, double node_log_visits, std::uint64_t edge_visits, double c_exp) noexcept {
  return mean_value + c_exp * std::sqrt(node_log_visits / (1.0 + static_cast<double>(edge_visits)));
}

}  // namespace agentq
