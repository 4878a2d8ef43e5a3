// The Python face of the core: conversions only. pybind11 turns std::invalid_argument into ValueError, std::out_of_range
// into IndexError; ByteLimit becomes MemoryError. Every call on a forest holds the forest's lock: two threads on one
// forest take turns. A long call releases the GIL: threads on different forests then run side by side.
#include <pybind11/stl.h>

#include <cmath>
#include <optional>
#include <system_error>

#include "bindings/arrays.h"
#include "bindings/attend.h"
#include "bindings/files.h"
#include "bindings/scalar.h"
#include "bindings/shared.h"
#include "csrc/forest.h"
#include "csrc/score.h"

namespace agentq::bindings {
namespace {

template <typename Enum>
struct Choice {
  const char* name;
  Enum value;
};
constexpr Choice<Selection> kSelections[] = {
    {"ucb1", Selection::kUcb1}, {"uct", Selection::kUct}, {"puct", Selection::kPuct},
    {"best_first", Selection::kBestFirst}, {"gumbel", Selection::kGumbel},
    {"thompson_gaussian", Selection::kThompsonGaussian}, {"thompson_beta", Selection::kThompsonBeta}};
constexpr Choice<Unvisited> kUnvisited[] = {{"formula", Unvisited::kFormula}, {"first", Unvisited::kFirst}};
constexpr Choice<Backup> kBackups[] = {{"mean", Backup::kMean}, {"max", Backup::kMax}};

template <typename Enum, std::size_t n>
Enum choose(const char* what, const Choice<Enum> (&choices)[n], const std::string& got) {
  std::string known;
  for (std::size_t i = 0; i < n; ++i) {
    if (got == choices[i].name) return choices[i].value;
    known += (i == 0 ? "'" : i + 1 == n ? " or '" : ", '") + std::string(choices[i].name) + "'";
  }
  throw std::invalid_argument(std::string(what) + " must be " + known + "; got '" + got + "'");
}

template <typename Enum, std::size_t n>
const char* name_of(const Choice<Enum> (&choices)[n], Enum value) {
  for (const Choice<Enum>& choice : choices)
    if (choice.value == value) return choice.name;
  return "";
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

[[noreturn]] void no_such(const char* kind, const std::string& id) {
  throw std::out_of_range(std::string("no ") + kind + " " + id);
}

/// One id that fits its type; whether there is such a node or tree the forest checks itself.
NodeId node_of(std::int64_t node) {
  if (node != static_cast<NodeId>(node)) no_such("node", std::to_string(node));
  return static_cast<NodeId>(node);
}

TreeId tree_of(std::int64_t tree) {
  if (tree != static_cast<TreeId>(tree)) no_such("tree", std::to_string(tree));
  return static_cast<TreeId>(tree);
}

struct Tickets : Input<Ticket> {
  explicit Tickets(const py::object& tickets)
      : Input(tickets, "tickets", [](const std::string& value) {
          throw std::invalid_argument("tickets must be what ask gave; got " + value);
        }) {}
};

struct Trees : Input<TreeId> {
  explicit Trees(const py::object& trees) : Input(trees, "trees", [](const std::string& id) { no_such("tree", id); }) {}
};

std::unique_ptr<SharedForest> make(const std::string& selection, double c_exp, const std::string& unvisited,
                                   bool exhaust, const std::string& backup, double discount, double alpha,
                                   bool squares, std::uint64_t seed, std::int64_t num_simulations,
                                   std::int64_t max_considered, double gumbel_scale,
                                   std::optional<double> success_at, bool transpositions, std::int64_t threads,
                                   std::int64_t max_bytes) {
  ForestConfig config;
  config.selection = choose("selection", kSelections, selection);
  config.c_exp = c_exp;
  config.unvisited = choose("unvisited", kUnvisited, unvisited);
  config.exhaust = exhaust;
  config.backup = choose("backup", kBackups, backup);
  config.discount = discount;
  config.alpha = alpha;
  config.squares = squares;
  config.seed = seed;
  config.num_simulations = count_of(num_simulations, "num_simulations");
  config.max_considered = count_of(max_considered, "max_considered");
  config.gumbel_scale = gumbel_scale;
  if (success_at) config.success_at = *success_at;
  config.transpositions = transpositions;
  config.threads = count_of(threads, "threads");
  config.max_bytes = at_least(max_bytes, 0, "max_bytes");
  return std::make_unique<SharedForest>(Forest(config));
}

py::array_t<TreeId> add_trees(SharedForest& self, std::int64_t n) {
  const std::size_t count = at_least(n, 0, "n");
  return to_numpy(self.locked([&](Forest& forest) { return forest.add_trees(count); }));
}

void drop(SharedForest& self, const py::object& trees) {
  Trees ids(trees);
  ids.detach();
  self.locked([&](Forest& forest) { forest.drop(ids.span()); });
}

NodeId root(SharedForest& self, std::int64_t tree) {
  return self.locked_briefly([&](const Forest& forest) { return forest.root(tree_of(tree)); });
}

py::tuple ask(SharedForest& self, const py::object& trees, const py::object& n) {
  Trees ids(trees);
  Leaves leaves;
  if (PyIndex_Check(n.ptr()) && !py::isinstance<py::array>(n)) {
    const std::size_t count = at_least(n.cast<std::int64_t>(), 1, "n");
    leaves = self.locked_for(
        ids.size() * count, [&](Forest& forest) { return forest.ask(ids.span(), count); }, ids);
  } else {
    Input<std::uint32_t> quotas(n, "n", [](const std::string& value) {
      throw std::invalid_argument("n must be in [0, 2**32) for each tree; got " + value);
    });
    std::size_t all = 0;
    for (const std::uint32_t quota : quotas.span()) all += quota;
    leaves = self.locked_for(all, [&](Forest& forest) { return forest.ask(ids.span(), quotas.span()); }, ids, quotas);
  }
  return py::make_tuple(to_numpy(std::move(leaves.ticket)), to_numpy(std::move(leaves.node)),
                        to_numpy(std::move(leaves.tree)), to_numpy(std::move(leaves.depth)),
                        to_numpy(std::move(leaves.status)));
}

py::array_t<NodeId> extend(SharedForest& self, const py::object& tickets, const py::object& ranks) {
  Tickets ids(tickets);
  const py::object first = to_numpy(std::vector<std::uint32_t>(ranks.is_none() ? ids.size() : 0));
  Input<std::uint32_t> rank(ranks.is_none() ? first : ranks, "ranks", [](const std::string& value) {
    throw std::invalid_argument("ranks must be in [0, 2**32); got " + value);
  });
  return to_numpy(self.locked_for(
      ids.size(), [&](Forest& forest) { return forest.extend(ids.span(), rank.span()); }, ids, rank));
}

py::array_t<NodeId> expand(SharedForest& self, const py::object& tickets, const py::object& widths,
                           const py::object& critic_values, const py::object& logps, const py::object& priors) {
  Tickets ids(tickets);
  Input<std::uint32_t> width(widths, "widths", [](const std::string& value) {
    throw std::invalid_argument("widths must be in [1, " + std::to_string(kMaxWidth) + "]; got " + value);
  });
  auto critic = Input<float>::optional(critic_values, "critic_values");
  auto logp = Input<float>::optional(logps, "logps"), prior = Input<float>::optional(priors, "priors");
  return to_numpy(self.locked_for(
      ids.size(),
      [&](Forest& forest) {
        return forest.expand(ids.span(), width.span(), critic.span(), logp.span(), prior.span());
      },
      ids, width, critic, logp, prior));
}

py::array_t<NodeId> widen(SharedForest& self, const py::object& tickets, const py::object& critic_values,
                          const py::object& logps, const py::object& priors) {
  Tickets ids(tickets);
  auto critic = Input<float>::optional(critic_values, "critic_values");
  auto logp = Input<float>::optional(logps, "logps"), prior = Input<float>::optional(priors, "priors");
  return to_numpy(self.locked_for(
      ids.size(), [&](Forest& forest) { return forest.widen(ids.span(), critic.span(), logp.span(), prior.span()); },
      ids, critic, logp, prior));
}

py::array_t<NodeId> recommend(SharedForest& self, const py::object& trees) {
  Trees ids(trees);
  ids.detach();
  return to_numpy(self.locked([&](const Forest& forest) { return forest.recommend(ids.span()); }));
}

template <void (Forest::*Call)(std::span<const Ticket>)>
void on_tickets(SharedForest& self, const py::object& tickets) {
  Tickets ids(tickets);
  self.locked_for(ids.size(), [&](Forest& forest) { (forest.*Call)(ids.span()); }, ids);
}

void tell(SharedForest& self, const py::object& tickets, const py::object& returns) {
  Tickets ids(tickets);
  Input<double> values(returns, "returns");
  self.locked_for(ids.size(), [&](Forest& forest) { forest.tell(ids.span(), values.span()); }, ids, values);
}

py::array_t<NodeId> nodes_of(SharedForest& self, const py::object& tickets) {
  Tickets ids(tickets);
  return to_numpy(self.locked_briefly([&](const Forest& forest) { return forest.nodes_of(ids.span()); }));
}

py::tuple pairs(SharedForest& self, double alpha, double threshold, std::int64_t min_visits,
                std::int64_t max_pairs_per_node, const py::object& trees) {
  const PairQuery query{alpha, threshold, count_of(min_visits, "min_visits"),
                        count_of(max_pairs_per_node, "max_pairs_per_node")};
  std::optional<Trees> ids;
  if (!trees.is_none()) ids.emplace(trees), ids->detach();
  Pairs found = self.locked(
      [&](const Forest& forest) { return ids ? forest.pairs(query, ids->span()) : forest.pairs(query); });
  return py::make_tuple(to_numpy(std::move(found.node)), to_numpy(std::move(found.chosen)),
                        to_numpy(std::move(found.rejected)), to_numpy(std::move(found.gap)));
}

py::array_t<NodeId> path(SharedForest& self, std::int64_t node) {
  return to_numpy(self.locked_briefly([&](const Forest& forest) { return forest.path(node_of(node)); }));
}

py::array_t<NodeId> children(SharedForest& self, std::int64_t node) {
  return to_numpy(self.locked_briefly([&](const Forest& forest) { return forest.children(node_of(node)); }));
}

/// Of one tree, of several, of all.
py::dict table(SharedForest& self, const py::object& trees) {
  std::optional<Trees> ids;
  if (PyIndex_Check(trees.ptr()) && !py::isinstance<py::array>(trees))  // one number, also NumPy's
    ids.emplace(py::make_tuple(trees));
  else if (!trees.is_none())
    ids.emplace(trees);
  if (ids) ids->detach();
  TreeTable t = self.locked([&](const Forest& forest) { return forest.table(ids ? ids->span() : forest.trees()); });
  py::dict out;
  out["tree"] = to_numpy(std::move(t.tree));
  out["id"] = to_numpy(std::move(t.id));
  out["parent"] = to_numpy(std::move(t.parent));
  out["depth"] = to_numpy(std::move(t.depth));
  out["visit_count"] = to_numpy(std::move(t.visit_count));
  out["in_flight"] = to_numpy(std::move(t.in_flight));
  out["value_sum"] = to_numpy(std::move(t.value_sum));
  if (self.forest.config().squares) out["square_sum"] = to_numpy(std::move(t.square_sum));
  out["own_count"] = to_numpy(std::move(t.own_count));
  if (self.forest.config().backup == Backup::kMean) out["own_sum"] = to_numpy(std::move(t.own_sum));
  if (!std::isnan(self.forest.config().success_at)) out["successes"] = to_numpy(std::move(t.successes));
  out["state"] = to_numpy(std::move(t.state));
  out["critic_value"] = to_numpy(std::move(t.critic_value));
  out["logp"] = to_numpy(std::move(t.logp));
  out["prior"] = to_numpy(std::move(t.prior));
  out["flags"] = to_numpy(std::move(t.flags));
  return out;
}

py::array_t<TreeId> trees(SharedForest& self) {
  return to_numpy(self.locked([](const Forest& forest) { return forest.trees(); }));
}

void prune(SharedForest& self, std::int64_t node) {
  self.locked([&](Forest& forest) { forest.prune(node_of(node)); });
}

py::tuple merge(SharedForest& self, std::int64_t tree, std::int64_t other) {
  auto [old_ids, new_ids] = self.locked([&](Forest& forest) { return forest.merge(tree_of(tree), tree_of(other)); });
  return py::make_tuple(to_numpy(std::move(old_ids)), to_numpy(std::move(new_ids)));
}

void set_states(SharedForest& self, const py::object& nodes, const py::object& keys) {
  Input<NodeId> ids(nodes, "nodes", [](const std::string& id) { no_such("node", id); });
  Input<std::uint64_t> values(keys, "keys", [](const std::string& key) {
    throw std::invalid_argument("keys must be in [0, 2**64); got " + key);
  });
  self.locked_for(ids.size(), [&](Forest& forest) { forest.set_states(ids.span(), values.span()); }, ids, values);
}

py::tuple states(SharedForest& self, std::int64_t tree) {
  const std::vector<State> found = self.locked([&](const Forest& forest) {
    const std::span<const State> states = forest.states(tree_of(tree));
    return std::vector<State>(states.begin(), states.end());
  });
  std::vector<std::uint64_t> key;
  std::vector<std::uint32_t> started;
  std::vector<double> value_sum;
  for (const State& state : found) {
    key.push_back(state.key), started.push_back(state.started);
    value_sum.push_back(state.value_sum == kNothing ? 0.0 : state.value_sum);
  }
  return py::make_tuple(to_numpy(std::move(key)), to_numpy(std::move(started)), to_numpy(std::move(value_sum)));
}

py::tuple reroot(SharedForest& self, std::int64_t tree, std::int64_t node) {
  auto [old_ids, new_ids] = self.locked([&](Forest& forest) { return forest.reroot(tree_of(tree), node_of(node)); });
  return py::make_tuple(to_numpy(std::move(old_ids)), to_numpy(std::move(new_ids)));
}

/// Getter of one member of every cell.
template <auto Member>
auto column(SharedForest& self) {
  auto [memory, size] =
      self.locked_briefly([](const Forest& forest) { return std::pair(forest.cells(), forest.num_cells()); });
  const auto* first = &(memory->template as<Cell>()->slot.*Member);
  return view_of(std::move(memory), first, size, sizeof(Cell));
}

py::bytes to_bytes(SharedForest& self) {
  return self.locked([](const Forest& forest) { return forest.to_bytes(); });
}

std::unique_ptr<SharedForest> from_bytes(const py::bytes& bytes) {
  const auto view = static_cast<std::string_view>(bytes);
  const py::gil_scoped_release release;
  return std::make_unique<SharedForest>(Forest::from_bytes(std::span(view.data(), view.size())));
}

std::string name_of_file(const py::object& path) {
  const auto name = py::module_::import("os").attr("fsencode")(path).cast<std::string>();
  if (name.find('\0') != std::string::npos)
    throw std::invalid_argument("path must contain no null byte; got " + described(path));
  return name;
}

void save(SharedForest& self, const py::object& path) {
  const std::string name = name_of_file(path);
  self.locked([&](const Forest& forest) { save_to(name, forest, self.journal); });
}

std::unique_ptr<SharedForest> load(const py::object& path) {
  const std::string name = name_of_file(path);
  const py::gil_scoped_release release;
  Journal journal;
  Forest forest = load_from(name, journal);
  return std::make_unique<SharedForest>(std::move(forest), std::move(journal));
}

std::string repr(SharedForest& self) {
  return self.locked([](const Forest& forest) {
    return "<agentq.Forest: " + std::to_string(forest.num_trees()) + " trees, " + std::to_string(forest.num_nodes()) +
           " nodes, " + std::to_string(forest.num_in_flight()) + " in flight>";
  });
}

template <auto Member>
auto count(SharedForest& self) {
  return self.locked_briefly([](const Forest& forest) { return (forest.*Member)(); });
}

template <auto Member>
auto setting(const SharedForest& self) {
  return self.forest.config().*Member;
}

void bind_forest(py::module_& m) {
  using namespace py::literals;
  const ForestConfig d;
  py::class_<SharedForest> forest(m, "Forest", "Many search trees in one arena; see _core.pyi for every contract.");
  add_scalar_calls(forest);
  forest
      .def(py::init(&make), py::kw_only(), "selection"_a = "ucb1", "c_exp"_a = d.c_exp, "unvisited"_a = "formula",
           "exhaust"_a = d.exhaust, "backup"_a = "mean", "discount"_a = d.discount, "alpha"_a = d.alpha,
           "squares"_a = d.squares, "seed"_a = d.seed, "num_simulations"_a = d.num_simulations,
           "max_considered"_a = d.max_considered, "gumbel_scale"_a = d.gumbel_scale, "success_at"_a = py::none(),
           "transpositions"_a = d.transpositions, "threads"_a = d.threads, "max_bytes"_a = d.max_bytes)
      .def("add_trees", &add_trees, "n"_a)
      .def("drop", &drop, "trees"_a)
      .def("root", &root, "tree"_a)
      .def("ask", &ask, "trees"_a, "n"_a = 1)
      .def("extend", &extend, "tickets"_a, "ranks"_a = py::none())
      .def("expand", &expand, "tickets"_a, "widths"_a, "critic_values"_a = py::none(), "logps"_a = py::none(),
           "priors"_a = py::none())
      .def("widen", &widen, "tickets"_a, "critic_values"_a = py::none(), "logps"_a = py::none(),
           "priors"_a = py::none())
      .def("recommend", &recommend, "trees"_a)
      .def("set_terminal", &on_tickets<&Forest::set_terminal>, "tickets"_a)
      .def("tell", &tell, "tickets"_a, "returns"_a)
      .def("cancel", &on_tickets<&Forest::cancel>, "tickets"_a)
      .def("abandon", &on_tickets<&Forest::abandon>, "tickets"_a)
      .def("nodes_of", &nodes_of, "tickets"_a)
      .def("pairs", &pairs, py::kw_only(), "alpha"_a, "threshold"_a, "min_visits"_a = 1, "max_pairs_per_node"_a = 0,
           "trees"_a = py::none())
      .def("prune", &prune, "node"_a)
      .def("reroot", &reroot, "tree"_a, "node"_a)
      .def("merge", &merge, "tree"_a, "other"_a)
      .def("set_states", &set_states, "nodes"_a, "keys"_a)
      .def("states", &states, "tree"_a)
      .def("path", &path, "node"_a)
      .def("children", &children, "node"_a)
      .def("table", &table, "trees"_a = py::none())
      .def("to_bytes", &to_bytes)
      .def_static("from_bytes", &from_bytes, "data"_a)
      .def("save", &save, "path"_a)
      .def_static("load", &load, "path"_a)
      .def("__repr__", &repr)
      .def_property_readonly("value_sum", &column<&Slot::value_sum>)
      .def_property_readonly("started", &column<&Slot::started>)
      .def_property_readonly("trees", &trees)
      .def_property_readonly("num_nodes", &count<&Forest::num_nodes>)
      .def_property_readonly("num_trees", &count<&Forest::num_trees>)
      .def_property_readonly("num_in_flight", &count<&Forest::num_in_flight>)
      .def_property_readonly("bytes_in_use", &count<&Forest::bytes_in_use>)
      .def_property_readonly("selection", [](const SharedForest& self) { return name_of(kSelections, setting<&ForestConfig::selection>(self)); })
      .def_property_readonly("unvisited", [](const SharedForest& self) { return name_of(kUnvisited, setting<&ForestConfig::unvisited>(self)); })
      .def_property_readonly("backup", [](const SharedForest& self) { return name_of(kBackups, setting<&ForestConfig::backup>(self)); })
      .def_property_readonly("c_exp", &setting<&ForestConfig::c_exp>)
      .def_property_readonly("exhaust", &setting<&ForestConfig::exhaust>)
      .def_property_readonly("discount", &setting<&ForestConfig::discount>)
      .def_property_readonly("alpha", &setting<&ForestConfig::alpha>)
      .def_property_readonly("squares", &setting<&ForestConfig::squares>)
      .def_property_readonly("success_at", [](const SharedForest& self) {
        const double value = setting<&ForestConfig::success_at>(self);
        return std::isnan(value) ? std::optional<double>() : std::optional<double>(value);
      })
      .def_property("threads", &setting<&ForestConfig::threads>, [](SharedForest& self, std::int64_t threads) {
        self.locked([&](Forest& forest) { forest.set_threads(count_of(threads, "threads")); });
      })
      .def_property_readonly("transpositions", &setting<&ForestConfig::transpositions>)
      .def_property_readonly("seed", &setting<&ForestConfig::seed>)
      .def_property_readonly("num_simulations", &setting<&ForestConfig::num_simulations>)
      .def_property_readonly("max_considered", &setting<&ForestConfig::max_considered>)
      .def_property_readonly("gumbel_scale", &setting<&ForestConfig::gumbel_scale>)
      .def_property_readonly("max_bytes", &setting<&ForestConfig::max_bytes>);
}

}  // namespace
}  // namespace agentq::bindings

PYBIND11_MODULE(_core, m) {
  namespace py = pybind11;
  using namespace py::literals;
  m.doc() = "The search core: many trees, their statistics, selection, backup and preference pairs.";
  py::register_exception_translator([](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const agentq::ByteLimit& limit) {
      py::set_error(PyExc_MemoryError, limit.what());
    } catch (const agentq::bindings::FileError& failed) {
      const std::string message = failed.message.empty() ? std::generic_category().message(failed.code) : failed.message;
      const py::object name = py::reinterpret_steal<py::object>(PyUnicode_DecodeFSDefault(failed.path.c_str()));
      const py::object raised = py::reinterpret_borrow<py::object>(PyExc_OSError)(failed.code, message, name);
      PyErr_SetObject(py::type::handle_of(raised).ptr(), raised.ptr());
    }
  });
  m.def("ucb1_score", &agentq::ucb1_score, "mean_value"_a, "node_visits"_a, "edge_visits"_a, "c_exp"_a);
  agentq::bindings::bind_forest(m);
  agentq::bindings::bind_attend(m);
  m.attr("NO_NODE") = agentq::kNoNode;
  m.attr("TERMINAL") = static_cast<int>(agentq::kTerminal);
  m.attr("EXHAUSTED") = static_cast<int>(agentq::kExhausted);
  m.attr("OK") = static_cast<int>(agentq::AskStatus::kOk);
  m.attr("ALL_EXHAUSTED") = static_cast<int>(agentq::AskStatus::kExhausted);
  m.attr("BLOCKED") = static_cast<int>(agentq::AskStatus::kBlocked);
}
