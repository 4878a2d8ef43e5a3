// Attention of decoding for Python.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

namespace agentq::bindings {

namespace py = pybind11;

/// Gives the module attend_rows.
void bind_attend(py::module_& m);

}  // namespace agentq::bindings
