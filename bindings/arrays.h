// NumPy arrays to std::vector and back. Inputs are copied, so that nothing another thread does to them while the GIL is
// released can reach the core.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace agentq::bindings {

namespace py = pybind11;

/// `value` as a one-dimensional array whose dtype kind is one of `kinds`; an empty list has no kind and passes.
inline py::array one_dimensional(const py::object& value, const char* name, const char* kinds, const char* what) {
  const py::array array = py::array::ensure(value);
  if (!array || array.ndim() != 1) {
    PyErr_Clear();
    throw std::invalid_argument(std::string(name) + " must be a one-dimensional array; got " +
                                py::repr(value).cast<std::string>());
  }
  const char kind = array.dtype().kind();
  if (array.size() > 0 && std::string(kinds).find(kind) == std::string::npos)
    throw std::invalid_argument(std::string(name) + " must be " + what + "; got dtype " +
                                py::str(array.dtype()).cast<std::string>());
  return array;
}

template <typename T>
std::vector<T> copy_of(const py::array& array) {
  const auto typed = py::array_t<T, py::array::c_style | py::array::forcecast>::ensure(array);
  if (!typed) throw py::error_already_set();
  return std::vector<T>(typed.data(), typed.data() + typed.size());
}

/// Whole numbers that fit `T`; `outside(value)` throws for those that do not.
template <typename T, typename Outside>
std::vector<T> integers(const py::object& value, const char* name, Outside&& outside) {
  const py::array array = one_dimensional(value, name, "iu", "whole numbers");
  if (array.dtype().is(py::dtype::of<T>())) return copy_of<T>(array);
  std::vector<T> out;
  out.reserve(static_cast<std::size_t>(array.size()));
  for (const std::int64_t wide : copy_of<std::int64_t>(array)) {
    if (wide < static_cast<std::int64_t>(std::numeric_limits<T>::min()) ||
        wide > static_cast<std::int64_t>(std::numeric_limits<T>::max()))
      outside(wide);
    out.push_back(static_cast<T>(wide));
  }
  return out;
}

template <typename T>
std::vector<T> numbers(const py::object& value, const char* name) {
  return copy_of<T>(one_dimensional(value, name, "fiub", "numbers"));
}

/// A NumPy array that owns `values`.
template <typename T>
py::array_t<T> to_numpy(std::vector<T>&& values) {
  auto owner = std::make_unique<std::vector<T>>(std::move(values));
  const T* data = owner->data();
  const auto size = static_cast<py::ssize_t>(owner->size());
  py::capsule base(owner.get(), [](void* pointer) { delete static_cast<std::vector<T>*>(pointer); });
  owner.release();
  return py::array_t<T>(size, data, base);
}

/// A read-only NumPy view of a shared buffer, which it keeps alive.
template <typename T>
py::array_t<T> view_of(std::shared_ptr<const T[]> buffer, std::size_t size) {
  auto owner = std::make_unique<std::shared_ptr<const T[]>>(std::move(buffer));
  const T* data = owner->get();
  py::capsule base(owner.get(), [](void* pointer) { delete static_cast<std::shared_ptr<const T[]>*>(pointer); });
  owner.release();
  py::array_t<T> view(static_cast<py::ssize_t>(size), data, base);
  view.attr("flags").attr("writeable") = false;
  return view;
}

}  // namespace agentq::bindings
