// The calls on one leaf, through CPython's own calling convention.
#pragma once

#include <pybind11/pybind11.h>

namespace agentq::bindings {

/// Adds ask_one, expand_one and tell_one to the Python class of SharedForest.
void add_scalar_calls(pybind11::handle forest_class);

/// Adds step_one to the Python class of SharedLockstep.
void add_lockstep_call(pybind11::handle lockstep_class);

}  // namespace agentq::bindings
