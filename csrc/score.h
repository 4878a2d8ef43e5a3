// The score that selection maximises. Owns the formula and nothing else.
#pragma once

#include <cstdint>

namespace agentq {

/// UCB1 score of one edge (h, a); selection takes the edge with the largest.
///
///     Q(h, a) + c_exp * sqrt( ln max(1, N(h)) / (1 + N(h, a)) )
///
/// @param mean_value   Q(h, a), in reward units: [0, 1] for a success reward.
/// @param node_visits  N(h) = sum over a of N(h, a), at least 0. The paper's ln 0 is undefined: it counts as ln 1 = 0 (ours).
/// @param edge_visits  N(h, a), at least 0; count in-flight rollouts in, so that parallel rollouts spread out.
/// @param c_exp        exploration constant, at least 0, in reward units.
/// @return  a finite score, in reward units.
/// @throws  std::invalid_argument if a count is negative, or mean_value or c_exp is not finite, or c_exp < 0.
///
/// Source: Putta et al. 2024, arXiv:2408.07199, eq. 7; the `1 +` is theirs. Auer et al. 2002 divide by N(h, a) and try
/// every action once.
double ucb1_score(double mean_value, std::int64_t node_visits, std::int64_t edge_visits, double c_exp);

}  // namespace agentq
