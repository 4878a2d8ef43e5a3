// Conversions between NumPy and the core; no logic. pybind11 turns std::invalid_argument into ValueError and
// std::out_of_range into IndexError.
#include <pybind11/pybind11.h>

#include "csrc/score.h"

namespace py = pybind11;

PYBIND11_MODULE(_core, m) {
  m.doc() = "The search core: a forest of trees, their statistics, selection, backup and preference pairs.";
  m.def("ucb1_score", &agentq::ucb1_score, py::arg("mean_value"), py::arg("node_visits"), py::arg("edge_visits"),
        py::arg("c_exp"));
}
