#include "csrc/score.h"

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
    throw std::invalid_argument("c_exp must be finite and at least 0; got " + std::to_string(c_exp));
  const CountTable& table = CountTable::instance();
  const double scale = c_exp * table.root_log(static_cast<std::uint64_t>(node_visits));
  return mean_value + scale * table.edge(static_cast<std::uint64_t>(edge_visits)).spread;
}

}  // namespace agentq
