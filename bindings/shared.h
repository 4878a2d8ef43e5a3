// A forest shared by Python threads: its lock, and when the GIL is released.
#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <string>
#include <utility>

#include "csrc/forest.h"

namespace agentq::bindings {

namespace py = pybind11;

inline constexpr std::size_t kLong = 1024;  // entries per call from which releasing the GIL pays off

/// A value as it is shown in an error message: one short line.
inline std::string described(const py::handle& value) {
  if (py::hasattr(value, "shape") && py::hasattr(value, "dtype"))
    return "an array of shape " + py::repr(value.attr("shape")).cast<std::string>();
  std::string text = py::repr(value).cast<std::string>();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text.size() <= 80 ? text : text.substr(0, 77) + "...";
}

struct SharedForest {
  explicit SharedForest(Forest&& made) : forest(std::move(made)) {}

  /// Calls `act(forest)` under the lock, with the GIL released.
  template <typename Act>
  auto locked(Act&& act) {
    const py::gil_scoped_release release;  // first: never wait for the lock while holding the GIL
    const std::lock_guard<std::mutex> hold(mutex);
    return act(forest);
  }

  /// The same with the GIL held, so no other thread can change the arrays meanwhile.
  template <typename Act>
  auto locked_briefly(Act&& act) {
    std::unique_lock<std::mutex> hold(mutex, std::try_to_lock);
    if (!hold.owns_lock()) {
      const py::gil_scoped_release release;
      hold.lock();
    }
    return act(forest);
  }

  /// Uses one of the two, depending on the size of the work. Inputs are copied before the GIL is released.
  template <typename Act, typename... Inputs>
  auto locked_for(std::size_t work, Act&& act, Inputs&... inputs) {
    if (work < kLong) return locked_briefly(act);
    (inputs.detach(), ...);
    return locked(act);
  }

  Forest forest;
  std::mutex mutex;
};

}  // namespace agentq::bindings
