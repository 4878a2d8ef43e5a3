// Attention and the Llama decoder, for Python.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

namespace agentq::bindings {

namespace py = pybind11;

/// Adds attend_rows and Llama to the module.
void bind_decoding(py::module_& m);

}  // namespace agentq::bindings
