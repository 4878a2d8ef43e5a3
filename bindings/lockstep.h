// Lockstep for Python: arrays that are given once, a call that reads and overwrites them.
#pragma once

#include <memory>
#include <vector>

#include "bindings/shared.h"
#include "csrc/lockstep.h"

namespace agentq::bindings {

struct SharedLockstep : std::enable_shared_from_this<SharedLockstep> {
  SharedLockstep(const py::object& forest, std::span<const TreeId> trees, std::uint32_t simulations, std::size_t n);
  ~SharedLockstep();

  py::object owner;  // keeps the forest alive
  SharedForest& shared;
  std::unique_ptr<Lockstep> rows;
  std::vector<double> values;  // Python's arrays view these two
  std::vector<std::uint32_t> widths;
};

void bind_lockstep(py::module_& m);

}  // namespace agentq::bindings
