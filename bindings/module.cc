// The Python face of the core: conversions only. pybind11 turns std::invalid_argument into ValueError and
// std::out_of_range into IndexError. Every call on a forest releases the GIL and holds the forest's lock: two threads on
// one forest take turns, threads on different forests run side by side.
#include <mutex>
#include <optional>

#include "bindings/arrays.h"
#include "csrc/forest.h"
#include "csrc/score.h"

namespace agentq::bindings {
namespace {

struct SharedForest {
  explicit SharedForest(Forest&& made) : forest(std::move(made)) {}

  /// What `act(forest)` returns, without the GIL and under the lock.
  template <typename Act>
  auto locked(Act&& act) {
    const py::gil_scoped_release release;  // first: never wait for the lock while holding the GIL
    const std::lock_guard<std::mutex> hold(mutex);
    return act(forest);
  }

  /// The same for what is shorter than giving the GIL up: waits without the GIL only where another thread is at work.
  template <typename Act>
  auto locked_briefly(Act&& act) {
    if (!mutex.try_lock()) return locked(act);
    const std::lock_guard<std::mutex> hold(mutex, std::adopt_lock);
    return act(forest);
  }

  Forest forest;
  std::mutex mutex;
};

std::string choices_error(const char* name, const char* known, const std::string& got) {
  return std::string(name) + " must be " + known + "; got '" + got + "'";
}

Selection selection_of(const std::string& name) {
  if (name == "ucb1") return Selection::kUcb1;
  throw std::invalid_argument(choices_error("selection", "'ucb1'", name));
}

Unvisited unvisited_of(const std::string& name) {
  if (name == "formula") return Unvisited::kFormula;
  if (name == "first") return Unvisited::kFirst;
  throw std::invalid_argument(choices_error("unvisited", "'formula' or 'first'", name));
}

std::size_t at_least(std::int64_t value, std::int64_t least, const char* name) {
  if (value < least)
    throw std::invalid_argument(std::string(name) + " must be at least " + std::to_string(least) + "; got " +
                                std::to_string(value));
  return static_cast<std::size_t>(value);
}

std::uint32_t count_of(std::int64_t value, const char* name) {
  at_least(value, 0, name);
  if (value > std::numeric_limits<std::uint32_t>::max())
    throw std::invalid_argument(std::string(name) + " must be below 2**32; got " + std::to_string(value));
  return static_cast<std::uint32_t>(value);
}

[[noreturn]] void no_such(const char* kind, std::int64_t id, std::size_t count) {
  throw std::out_of_range(std::string("no ") + kind + " " + std::to_string(id) + "; there are " +
                          std::to_string(count));
}

/// One id that fits its type; whether there is such a node or tree the forest checks itself.
NodeId node_of(const Forest& forest, std::int64_t node) {
  if (node != static_cast<NodeId>(node)) no_such("node", node, forest.num_nodes());
  return static_cast<NodeId>(node);
}

TreeId tree_of(const Forest& forest, std::int64_t tree) {
  if (tree != static_cast<TreeId>(tree)) no_such("tree", tree, forest.num_trees());
  return static_cast<TreeId>(tree);
}

std::vector<NodeId> node_ids(SharedForest& self, const py::object& nodes) {
  return integers<NodeId>(nodes, "nodes", [&](std::int64_t id) {
    no_such("node", id, self.locked([](const Forest& forest) { return forest.num_nodes(); }));
  });
}

std::vector<TreeId> tree_ids(SharedForest& self, const py::object& trees) {
  return integers<TreeId>(trees, "trees", [&](std::int64_t id) {
    no_such("tree", id, self.locked([](const Forest& forest) { return forest.num_trees(); }));
  });
}

std::unique_ptr<SharedForest> make(const std::string& selection, double c_exp, const std::string& unvisited,
                                   bool exhaust) {
  return std::make_unique<SharedForest>(
      Forest({selection_of(selection), c_exp, unvisited_of(unvisited), exhaust}));
}

py::array_t<NodeId> add_trees(SharedForest& self, std::int64_t n) {
  const std::size_t count = at_least(n, 0, "n");
  return to_numpy(self.locked([&](Forest& forest) { return forest.add_trees(count); }));
}

NodeId root(SharedForest& self, std::int64_t tree) {
  return self.locked([&](const Forest& forest) { return forest.root(tree_of(forest, tree)); });
}

py::tuple ask(SharedForest& self, const py::object& trees, std::int64_t n) {
  const std::size_t count = at_least(n, 1, "n");
  const std::vector<TreeId> ids = tree_ids(self, trees);
  Leaves leaves = self.locked([&](Forest& forest) { return forest.ask(ids, count); });
  return py::make_tuple(to_numpy(std::move(leaves.tree)), to_numpy(std::move(leaves.node)),
                        to_numpy(std::move(leaves.depth)), to_numpy(std::move(leaves.status)));
}

/// The node, or minus the status.
std::int64_t ask_one(SharedForest& self, std::int64_t tree) {
  return self.locked_briefly([&](Forest& forest) {
    const auto [status, node] = forest.ask_one(tree_of(forest, tree));
    return status == AskStatus::kOk ? static_cast<std::int64_t>(node) : -static_cast<std::int64_t>(status);
  });
}

NodeId expand_one(SharedForest& self, std::int64_t node, std::int64_t width) {
  const std::uint32_t count = count_of(width, "width");
  return self.locked_briefly([&](Forest& forest) {
    const NodeId id = node_of(forest, node);
    const std::vector<float> zeros(count);
    return forest.expand(std::span(&id, 1), std::span(&count, 1), zeros, zeros)[0];
  });
}

void tell_one(SharedForest& self, std::int64_t node, double value) {
  self.locked_briefly([&](Forest& forest) {
    const NodeId id = node_of(forest, node);
    forest.tell(std::span(&id, 1), std::span(&value, 1));
  });
}

py::array_t<NodeId> expand(SharedForest& self, const py::object& nodes, const py::object& widths,
                           const py::object& critic_values, const py::object& logps) {
  const std::vector<NodeId> ids = node_ids(self, nodes);
  const auto width = integers<std::uint32_t>(widths, "widths", [](std::int64_t value) {
    throw std::invalid_argument("widths must be at least 1 and below 2**32; got " + std::to_string(value));
  });
  const std::vector<float> critic = numbers<float>(critic_values, "critic_values");
  const std::vector<float> logp = numbers<float>(logps, "logps");
  return to_numpy(self.locked([&](Forest& forest) { return forest.expand(ids, width, critic, logp); }));
}

template <void (Forest::*Call)(std::span<const NodeId>)>
void on_nodes(SharedForest& self, const py::object& nodes) {
  const std::vector<NodeId> ids = node_ids(self, nodes);
  self.locked([&](Forest& forest) { (forest.*Call)(ids); });
}

void tell(SharedForest& self, const py::object& nodes, const py::object& returns) {
  const std::vector<NodeId> ids = node_ids(self, nodes);
  const std::vector<double> values = numbers<double>(returns, "returns");
  self.locked([&](Forest& forest) { forest.tell(ids, values); });
}

py::tuple pairs(SharedForest& self, double alpha, double threshold, std::int64_t min_visits,
                std::int64_t max_pairs_per_node, const py::object& trees) {
  const PairQuery query{alpha, threshold, count_of(min_visits, "min_visits"),
                        count_of(max_pairs_per_node, "max_pairs_per_node")};
  std::optional<std::vector<TreeId>> ids;
  if (!trees.is_none()) ids = tree_ids(self, trees);
  Pairs found = self.locked([&](const Forest& forest) { return ids ? forest.pairs(query, *ids) : forest.pairs(query); });
  return py::make_tuple(to_numpy(std::move(found.node)), to_numpy(std::move(found.chosen)),
                        to_numpy(std::move(found.rejected)), to_numpy(std::move(found.gap)));
}

py::array_t<NodeId> path(SharedForest& self, std::int64_t node) {
  return to_numpy(self.locked([&](const Forest& forest) { return forest.path(node_of(forest, node)); }));
}

/// Getter of one column of NodeColumns.
template <auto Member>
auto column(SharedForest& self) {
  auto [buffer, size] = self.locked([](const Forest& forest) {
    const auto& values = forest.columns().*Member;
    return std::pair(values.share(), values.size());
  });
  return view_of(std::move(buffer), size);
}

py::bytes to_bytes(SharedForest& self) {
  return self.locked([](const Forest& forest) { return forest.to_bytes(); });
}

std::unique_ptr<SharedForest> from_bytes(const py::bytes& bytes) {
  const auto view = static_cast<std::string_view>(bytes);
  const py::gil_scoped_release release;
  return std::make_unique<SharedForest>(Forest::from_bytes(std::span(view.data(), view.size())));
}

/// Written beside and renamed, so that a kill leaves the old file or the new one.
void save(SharedForest& self, const py::object& path) {
  const py::object target = py::module_::import("pathlib").attr("Path")(path);
  const py::object beside = target.attr("with_name")(py::str(target.attr("name")) + py::str(".partial"));
  beside.attr("write_bytes")(to_bytes(self));
  beside.attr("replace")(target);
}

std::unique_ptr<SharedForest> load(const py::object& path) {
  return from_bytes(py::module_::import("pathlib").attr("Path")(path).attr("read_bytes")());
}

std::string repr(SharedForest& self) {
  return self.locked([](const Forest& forest) {
    return "<agentq.Forest: " + std::to_string(forest.num_trees()) + " trees, " + std::to_string(forest.num_nodes()) +
           " nodes>";
  });
}

void bind_forest(py::module_& m) {
  using namespace py::literals;
  py::class_<SharedForest>(m, "Forest", "Many search trees in one arena; see _core.pyi for every contract.")
      .def(py::init(&make), py::kw_only(), "selection"_a = "ucb1", "c_exp"_a = 1.0, "unvisited"_a = "formula",
           "exhaust"_a = true)
      .def("add_trees", &add_trees, "n"_a)
      .def("root", &root, "tree"_a)
      .def("ask", &ask, "trees"_a, "n"_a = 1)
      .def("ask_one", &ask_one, "tree"_a)
      .def("expand_one", &expand_one, "node"_a, "width"_a)
      .def("tell_one", &tell_one, "node"_a, "value"_a)
      .def("extend", &on_nodes<&Forest::extend>, "nodes"_a)
      .def("expand", &expand, "nodes"_a, "widths"_a, "critic_values"_a, "logps"_a)
      .def("set_terminal", &on_nodes<&Forest::set_terminal>, "nodes"_a)
      .def("tell", &tell, "nodes"_a, "returns"_a)
      .def("cancel", &on_nodes<&Forest::cancel>, "nodes"_a)
      .def("pairs", &pairs, py::kw_only(), "alpha"_a, "threshold"_a, "min_visits"_a = 1, "max_pairs_per_node"_a = 0,
           "trees"_a = py::none())
      .def("path", &path, "node"_a)
      .def("to_bytes", &to_bytes)
      .def_static("from_bytes", &from_bytes, "data"_a)
      .def("save", &save, "path"_a)
      .def_static("load", &load, "path"_a)
      .def("__repr__", &repr)
      .def_property_readonly("parent", &column<&NodeColumns::parent>)
      .def_property_readonly("tree", &column<&NodeColumns::tree>)
      .def_property_readonly("first_child", &column<&NodeColumns::first_child>)
      .def_property_readonly("child_count", &column<&NodeColumns::child_count>)
      .def_property_readonly("depth", &column<&NodeColumns::depth>)
      .def_property_readonly("visit_count", &column<&NodeColumns::visit_count>)
      .def_property_readonly("value_sum", &column<&NodeColumns::value_sum>)
      .def_property_readonly("critic_value", &column<&NodeColumns::critic_value>)
      .def_property_readonly("logp", &column<&NodeColumns::logp>)
      .def_property_readonly("in_flight", &column<&NodeColumns::in_flight>)
      .def_property_readonly("flags", &column<&NodeColumns::flags>)
      .def_property_readonly("mean_value", [](SharedForest& self) {
        return to_numpy(self.locked([](const Forest& forest) { return forest.mean_value(); }));
      })
      .def_property_readonly("num_nodes", [](SharedForest& self) {
        return self.locked([](const Forest& forest) { return forest.num_nodes(); });
      })
      .def_property_readonly("num_trees", [](SharedForest& self) {
        return self.locked([](const Forest& forest) { return forest.num_trees(); });
      })
      .def_property_readonly("c_exp", [](const SharedForest& self) { return self.forest.config().c_exp; })
      .def_property_readonly("selection", [](const SharedForest&) { return "ucb1"; })
      .def_property_readonly("unvisited", [](const SharedForest& self) {
        return self.forest.config().unvisited == Unvisited::kFirst ? "first" : "formula";
      })
      .def_property_readonly("exhaust", [](const SharedForest& self) { return self.forest.config().exhaust; });
}

}  // namespace
}  // namespace agentq::bindings

PYBIND11_MODULE(_core, m) {
  namespace py = pybind11;
  using namespace py::literals;
  m.doc() = "The search core: many trees, their statistics, selection, backup and preference pairs.";
  m.def("ucb1_score", &agentq::ucb1_score, "mean_value"_a, "node_visits"_a, "edge_visits"_a, "c_exp"_a);
  agentq::bindings::bind_forest(m);
  m.attr("NO_NODE") = agentq::kNoNode;
  m.attr("TERMINAL") = static_cast<int>(agentq::kTerminal);
  m.attr("EXHAUSTED") = static_cast<int>(agentq::kExhausted);
  m.attr("OK") = static_cast<int>(agentq::AskStatus::kOk);
  m.attr("ALL_EXHAUSTED") = static_cast<int>(agentq::AskStatus::kExhausted);
  m.attr("BLOCKED") = static_cast<int>(agentq::AskStatus::kBlocked);
}
