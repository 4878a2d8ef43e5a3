#include "csrc/score.h"

#include <cmath>
#include <stdexcept>
#include <string>

namespace agentq {

double ucb1_score(double mean_value, std::int64_t node_visits, std::int64_t edge_visits, double c_exp) {
  if (!std::isfinite(mean_value))
    throw std::invalid_argument("mean_value must be finite; got " + std::to_string(mean_value));
  if (node_visits < 0)
    throw std::invalid_argument("node_visits must be at least 0; got " + std::to_string(node_visits));
  if (edge_visits < 0)
    throw std::invalid_argument("edge_visits must be at least 0; got " + std::to_string(edge_visits));
  if (!std::isfinite(c_exp) || c_exp < 0)
    throw std::invalid_argument("c_exp must be at least 0 and finite; got " + std::to_string(c_exp));
  const double log_visits = node_visits > 1 ? std::log(static_cast<double>(node_visits)) : 0.0;
  return mean_value + c_exp * std::sqrt(log_visits / (1.0 + static_cast<double>(edge_visits)));
}

}  // namespace agentq
