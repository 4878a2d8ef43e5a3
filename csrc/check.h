// Argument checks that several calls share; each error is one line.
#pragma once

#include <cmath>
#include <span>
#include <stdexcept>
#include <string>

#include "csrc/forest.h"

namespace agentq {

inline std::string describe(NodeId node) { return "node " + std::to_string(node); }

inline void check_length(const char* name, std::size_t got, const char* per, std::size_t want) {
  if (got != want)
    throw std::invalid_argument(std::string(name) + " must have one entry per " + per + " (" + std::to_string(want) +
                                "); got " + std::to_string(got));
}

template <typename T>
void check_finite(const char* name, std::span<const T> values) {
  for (const T value : values)
    if (!std::isfinite(value))
      throw std::invalid_argument(std::string(name) + " must be finite; got " + std::to_string(value));
}

}  // namespace agentq
