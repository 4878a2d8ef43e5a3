#include "csrc/score.h"

#include <stdexcept>
#include <string>

namespace agentq {

double ucb1_score(double mean_value, std::int64_t parent_visit_count, std::int64_t visit_count, double c_exp) {
  if (!std::isfinite(mean_value))
    throw std::invalid_argument("mean_value must be finite; got " + std::to_string(mean_value));
  if (parent_visit_count < 0)
    throw std::invalid_argument("parent_visit_count must be at least 0; got " + std::to_string(parent_visit_count));
  if (visit_count < 0)
    throw std::invalid_argument("visit_count must be at least 0; got " + std::to_string(visit_count));
  if (!std::isfinite(c_exp) || c_exp < 0)
    throw std::invalid_argument("c_exp must be finite and at least 0; got " + std::to_string(c_exp));
  const CountTable& table = CountTable::instance();
  const double scale = c_exp * table.root_log(static_cast<std::uint64_t>(parent_visit_count));
  return mean_value + scale * table.spread(static_cast<std::uint64_t>(visit_count));
}

}  // namespace agentq
