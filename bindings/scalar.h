// The calls on one leaf, by CPython's own convention.
#pragma once

#include <pybind11/pybind11.h>

namespace agentq::bindings {

/// Gives the class of SharedForest ask_one, expand_one and tell_one.
void add_scalar_calls(pybind11::handle forest_class);

}  // namespace agentq::bindings
