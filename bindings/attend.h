// Attention for decoding, for Python.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

namespace agentq::bindings {

namespace py = pybind11;

/// Adds attend_rows to the module.
void bind_attend(py::module_& m);

}  // namespace agentq::bindings
