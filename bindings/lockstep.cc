#include "bindings/lockstep.h"

#include "bindings/arrays.h"
#include "bindings/scalar.h"

namespace agentq::bindings {
namespace {

std::shared_ptr<SharedLockstep> make(const py::object& forest, const py::object& trees, std::int64_t simulations,
                                     std::int64_t n) {
  Input<TreeId> ids(trees, "trees", [](const std::string& id) { no_such("tree", id); });
  ids.detach();
  const std::uint32_t most = count_of(simulations, "simulations");
  return std::make_shared<SharedLockstep>(forest, ids.span(), most, at_least(n, 1, "n"));
}

/// Tells, expands and asks; the number of rows now.
std::size_t step(SharedLockstep& self) {
  const std::size_t size = self.rows->size();
  const auto act = [&](const double* values, const std::uint32_t* widths) {
    self.rows->step({values, size}, {widths, size});
    return self.rows->size();
  };
  if (size < kLong)
    return self.shared.locked_briefly([&](Forest&) { return act(self.values.data(), self.widths.data()); });
  const std::vector<double> values = self.values;  // copies: another thread may change the arrays meanwhile
  const std::vector<std::uint32_t> widths = self.widths;
  return self.shared.locked([&](Forest&) { return act(values.data(), widths.data()); });
}

template <auto Column>
py::object column(SharedLockstep& self) {
  const auto& numbers = (*self.rows.*Column)();
  return view_of(self.shared_from_this(), numbers.data(), numbers.size(), sizeof(numbers[0]));
}

template <auto Member>
py::object answers(SharedLockstep& self) {
  auto& numbers = self.*Member;
  return view_of(self.shared_from_this(), numbers.data(), numbers.size(), sizeof(numbers[0]), true);
}

}  // namespace

SharedLockstep::SharedLockstep(const py::object& forest, std::span<const TreeId> trees, std::uint32_t simulations,
                               std::size_t n)
    : owner(forest), shared(forest.cast<SharedForest&>()) {
  rows = shared.locked([&](Forest& of) { return std::make_unique<Lockstep>(of, trees, simulations, n); });
  values.resize(rows->capacity()), widths.resize(rows->capacity());
}

SharedLockstep::~SharedLockstep() {
  if (rows) shared.locked_briefly([&](Forest&) { rows.reset(); });
}

void bind_lockstep(py::module_& m) {
  using namespace py::literals;
  py::class_<SharedLockstep, std::shared_ptr<SharedLockstep>> lockstep(m, "Lockstep", "Contract: _core.pyi.");
  add_lockstep_call(lockstep);
  lockstep.def(py::init(&make), "forest"_a, "trees"_a, "simulations"_a, "n"_a = 1)
      .def("step", &step)
      .def("__len__", [](const SharedLockstep& self) { return self.rows->size(); })
      .def_property_readonly("node", &column<&Lockstep::node>)
      .def_property_readonly("parent", &column<&Lockstep::parent>)
      .def_property_readonly("rank", &column<&Lockstep::rank>)
      .def_property_readonly("depth", &column<&Lockstep::depth>)
      .def_property_readonly("tree", &column<&Lockstep::tree>)
      .def_property_readonly("values", &answers<&SharedLockstep::values>)
      .def_property_readonly("widths", &answers<&SharedLockstep::widths>);
}

}  // namespace agentq::bindings
