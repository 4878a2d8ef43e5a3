// ask_one, expand_one, tell_one and step_one are so short that pybind11's call overhead exceeded their work. They use
// CPython's vectorcall convention instead. They accept, return and raise the same as every other call.
#include "bindings/scalar.h"

#include <array>
#include <limits>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>

#include "bindings/lockstep.h"

namespace agentq::bindings {
namespace {

template <typename T>
T converted(PyObject* object, const char* name) {
  if constexpr (std::is_floating_point_v<T>) {
    if (PyFloat_CheckExact(object)) return PyFloat_AS_DOUBLE(object);
  } else if (PyLong_CheckExact(object)) {
    if constexpr (std::is_signed_v<T>) {
      int overflow = 0;
      const T value = PyLong_AsLongLongAndOverflow(object, &overflow);
      if (overflow == 0) return value;
    } else {
      const T value = PyLong_AsUnsignedLongLong(object);
      if (value != std::numeric_limits<T>::max() || PyErr_Occurred() == nullptr) return value;
      PyErr_Clear();
    }
  }
  try {
    return py::cast<T>(py::handle(object));  // NumPy numbers and anything with __index__
  } catch (const py::cast_error&) {
    throw py::type_error(std::string(name) + " must be " + (std::is_floating_point_v<T> ? "a number" : "a whole number that fits") +
                         "; got " + described(object));
  }
}

template <typename T>
T& native_of(PyObject* self) {
  auto* instance = reinterpret_cast<py::detail::instance*>(self);
  void* native = instance->simple_layout ? instance->simple_value_holder[0] : instance->get_value_and_holder().value_ptr();
  if (native == nullptr)
    throw py::type_error(std::string(Py_TYPE(self)->tp_name) + ".__init__() must be called when it is overridden");
  return *static_cast<T*>(native);
}

/// A tuple of new references; nullptr, with an exception set, if one of them is.
template <typename... Items>
PyObject* tuple_of(Items... items) {
  PyObject* made = ((items != nullptr) && ...) ? PyTuple_New(sizeof...(items)) : nullptr;
  if (made == nullptr) {
    (Py_XDECREF(items), ...);
    return nullptr;
  }
  Py_ssize_t at = 0;
  (PyTuple_SET_ITEM(made, at++, items), ...);
  return made;
}

/// Returns the result of `act`; sets a Python exception and returns nullptr if it throws.
template <typename Act>
PyObject* guarded(Act&& act) noexcept {
  try {
    return act();
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const py::builtin_exception& error) {
    error.set_error();
  } catch (const ByteLimit& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  } catch (const std::bad_alloc& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  } catch (const std::out_of_range& error) {
    PyErr_SetString(PyExc_IndexError, error.what());
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

/// The arguments of a call, given by position or by name, in the order of `names`.
template <std::size_t n>
std::array<PyObject*, n> arguments(const char* call, const char* const (&names)[n], PyObject* const* given,
                                   Py_ssize_t by_position, PyObject* given_names) {
  std::array<PyObject*, n> found{};
  const auto size = static_cast<std::size_t>(by_position);
  const std::size_t by_name = given_names == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(given_names));
  if (size + by_name != n)
    throw py::type_error(std::string(call) + "() takes " + std::to_string(n) + " arguments; got " + std::to_string(size + by_name));
  for (std::size_t i = 0; i < size; ++i) found[i] = given[i];
  for (std::size_t i = 0; i < by_name; ++i) {
    std::size_t at = size;
    PyObject* name = PyTuple_GET_ITEM(given_names, static_cast<Py_ssize_t>(i));
    while (at < n && (found[at] != nullptr || PyUnicode_CompareWithASCIIString(name, names[at]) != 0)) ++at;
    if (at == n)
      throw py::type_error(std::string(call) + "() takes no further argument " + py::repr(name).cast<std::string>());
    found[at] = given[size + i];
  }
  return found;
}

/// (ticket, node), or None.
PyObject* ask_one(PyObject* self, PyObject* const* given, Py_ssize_t size, PyObject* names) {
  return guarded([&]() -> PyObject* {
    const auto [tree] = arguments("ask_one", {"tree"}, given, size, names);
    const auto wanted = converted<long long>(tree, "tree");
    const auto id = static_cast<TreeId>(wanted);
    if (id != wanted) throw std::out_of_range("no tree " + std::to_string(wanted));
    const std::optional<Leaf> leaf = native_of<SharedForest>(self).locked_briefly([&](Forest& forest) { return forest.ask_one(id); });
    if (!leaf) return Py_NewRef(Py_None);
    return tuple_of(PyLong_FromUnsignedLongLong(leaf->ticket), PyLong_FromUnsignedLong(leaf->node));
  });
}

PyObject* expand_one(PyObject* self, PyObject* const* given, Py_ssize_t size, PyObject* names) {
  return guarded([&] {
    const auto [ticket, width] = arguments("expand_one", {"ticket", "width"}, given, size, names);
    const auto id = converted<unsigned long long>(ticket, "ticket");
    const auto count = converted<long long>(width, "width");
    if (count < 0) throw std::invalid_argument("width must be at least 0; got " + std::to_string(count));
    if (count > std::numeric_limits<std::uint32_t>::max())
      throw std::invalid_argument("width must be below 2**32; got " + std::to_string(count));
    const std::optional<NodeId> first = native_of<SharedForest>(self).locked_briefly(
        [&](Forest& forest) { return forest.expand_one(id, static_cast<std::uint32_t>(count)); });
    return first ? PyLong_FromUnsignedLong(*first) : Py_NewRef(Py_None);
  });
}

PyObject* tell_one(PyObject* self, PyObject* const* given, Py_ssize_t size, PyObject* names) {
  return guarded([&] {
    const auto [ticket, value] = arguments("tell_one", {"ticket", "value"}, given, size, names);
    const auto id = converted<unsigned long long>(ticket, "ticket");
    const auto told = converted<double>(value, "value");
    native_of<SharedForest>(self).locked_briefly([&](Forest& forest) { forest.tell_one(id, told); });
    return Py_NewRef(Py_None);
  });
}

/// (node, parent, rank, depth) of the next leaf, or None.
PyObject* step_one(PyObject* self, PyObject* const* given, Py_ssize_t size, PyObject* names) {
  return guarded([&]() -> PyObject* {
    const auto [value, width] = arguments("step_one", {"value", "width"}, given, size, names);
    const auto told = converted<double>(value, "value");
    const auto count = converted<long long>(width, "width");
    if (count < 0 || count > kMaxWidth)
      throw std::invalid_argument("width must be in [0, " + std::to_string(kMaxWidth) + "]; got " +
                                  std::to_string(count));
    auto& lockstep = native_of<SharedLockstep>(self);
    const Lockstep& rows = *lockstep.rows;
    if (rows.size() != 1)
      throw std::invalid_argument("a lockstep must have one row for step_one; got " + std::to_string(rows.size()));
    const auto answer = static_cast<std::uint32_t>(count);
    lockstep.shared.locked_briefly([&](Forest&) { lockstep.rows->step({&told, 1}, {&answer, 1}); });
    if (rows.size() == 0) return Py_NewRef(Py_None);
    return tuple_of(PyLong_FromUnsignedLong(rows.node()[0]), PyLong_FromUnsignedLong(rows.parent()[0]),
                    PyLong_FromUnsignedLong(rows.rank()[0]), PyLong_FromLong(rows.depth()[0]));
  });
}

template <PyObject* (*call)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*)>
PyMethodDef method(const char* name, const char* doc) {
  // the cast that CPython documents for METH_FASTCALL | METH_KEYWORDS
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call)), METH_FASTCALL | METH_KEYWORDS, doc};
}

void add_calls(py::handle to, std::span<PyMethodDef> methods) {
  for (PyMethodDef& definition : methods) {
    PyObject* made = PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(to.ptr()), &definition);
    if (made == nullptr) throw py::error_already_set();
    to.attr(definition.ml_name) = py::reinterpret_steal<py::object>(made);
  }
}

}  // namespace

void add_scalar_calls(py::handle forest_class) {
  static std::array<PyMethodDef, 3> methods = {
      method<ask_one>("ask_one", "ask_one($self, tree)\n--\n\n"),
      method<expand_one>("expand_one", "expand_one($self, ticket, width)\n--\n\n"),
      method<tell_one>("tell_one", "tell_one($self, ticket, value)\n--\n\n"),
  };
  add_calls(forest_class, methods);
}

void add_lockstep_call(py::handle lockstep_class) {
  static std::array<PyMethodDef, 1> methods = {method<step_one>("step_one", "step_one($self, value, width)\n--\n\n")};
  add_calls(lockstep_class, methods);
}

}  // namespace agentq::bindings
