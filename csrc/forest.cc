#include "csrc/forest.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "csrc/score.h"

namespace agentq {
namespace {

constexpr std::size_t kMaxNodes = kNoNode;  // ids 0 .. 2^32 - 2
constexpr std::size_t kMaxTrees = std::numeric_limits<TreeId>::max();
constexpr std::uint32_t kMaxRollouts = std::numeric_limits<std::uint32_t>::max();

std::string describe(NodeId node) { return "node " + std::to_string(node); }

void check_length(const char* name, std::size_t got, const char* per, std::size_t want) {
  if (got != want)
    throw std::invalid_argument(std::string(name) + " must have one entry per " + per + " (" + std::to_string(want) +
                                "); got " + std::to_string(got));
}

}  // namespace

Forest::Forest(const ForestConfig& config) : config_(config) {
  if (!std::isfinite(config.c_exp) || config.c_exp < 0)
    throw std::invalid_argument("c_exp must be finite and at least 0; got " + std::to_string(config.c_exp));
}

void Forest::check_node(NodeId node) const {
  if (node >= num_nodes())
    throw std::out_of_range("no node " + std::to_string(node) + "; there are " + std::to_string(num_nodes()));
}

void Forest::check_tree(TreeId tree) const {
  if (tree < 0 || static_cast<std::size_t>(tree) >= num_trees())
    throw std::out_of_range("no tree " + std::to_string(tree) + "; there are " + std::to_string(num_trees()));
}

void Forest::reserve(std::size_t extra) {
  if (extra > kMaxNodes - num_nodes())
    throw std::invalid_argument("a forest must have at most " + std::to_string(kMaxNodes) + " nodes; got " +
                                std::to_string(num_nodes()) + " and " + std::to_string(extra) + " more");
  const std::size_t size = num_nodes() + extra;
  nodes_.each([size](auto& column) { column.reserve(size); });
  pending_.reserve(size);
}

void Forest::append(std::size_t count, NodeId parent, TreeId tree, std::int32_t depth) noexcept {
  nodes_.parent.append(count, parent);
  nodes_.tree.append(count, tree);
  nodes_.first_child.append(count, kNoNode);
  nodes_.child_count.append(count, 0);
  nodes_.depth.append(count, depth);
  nodes_.visit_count.append(count, 0);
  nodes_.value_sum.append(count, 0.0);
  nodes_.critic_value.append(count, 0.0f);
  nodes_.logp.append(count, 0.0f);
  nodes_.in_flight.append(count, 0);
  nodes_.flags.append(count, 0);
  pending_.append(count, 0);
}

std::vector<NodeId> Forest::add_trees(std::size_t count) {
  if (count > kMaxTrees - num_trees())
    throw std::invalid_argument("a forest must have at most " + std::to_string(kMaxTrees) + " trees; got " +
                                std::to_string(num_trees()) + " and " + std::to_string(count) + " more");
  std::vector<NodeId> roots(count);
  roots_.reserve(roots_.size() + count);
  reserve(count);
  for (NodeId& root : roots) {
    root = static_cast<NodeId>(num_nodes());
    append(1, kNoNode, static_cast<TreeId>(num_trees()), 0);
    roots_.push_back(root);
  }
  return roots;
}

/// The child that selection takes: the largest score; ties by fewer rollouts started, then by lower index.
/// Exhausted children are passed over (no flag is ever set unless config.exhaust); one child at least is not.
NodeId Forest::select_child(NodeId node) const noexcept {
  const NodeId first = nodes_.first_child[node];
  const NodeId end = first + nodes_.child_count[node];
  std::uint64_t node_visits = 0;
  for (NodeId child = first; child < end; ++child) node_visits += started(child);
  const double scale = config_.c_exp * table_->root_log(node_visits);

  NodeId best = kNoNode;
  double best_score = 0.0;
  std::uint32_t best_visits = 0;
  for (NodeId child = first; child < end; ++child) {
    if (is_exhausted(child)) continue;
    const std::uint32_t visits = started(child);
    if (visits == 0 && config_.unvisited == Unvisited::kFirst) return child;
    const double mean = nodes_.value_sum[child] * table_->reciprocal(visits);
    const double score = ucb1(mean, scale, table_->spread(visits));
    if (best == kNoNode || score > best_score || (score == best_score && visits < best_visits)) {
      best = child;
      best_score = score;
      best_visits = visits;
    }
  }
  return best;
}

std::pair<AskStatus, NodeId> Forest::ask_one(TreeId tree) {
  check_tree(tree);
  const NodeId root = roots_[static_cast<std::size_t>(tree)];
  if (is_exhausted(root)) return {AskStatus::kExhausted, kNoNode};
  NodeId leaf = root;
  while (!is_leaf(leaf)) leaf = select_child(leaf);
  if (nodes_.in_flight[leaf] > 0) return {AskStatus::kBlocked, kNoNode};
  if (started(root) == kMaxRollouts)
    throw std::invalid_argument("a tree must have at most " + std::to_string(kMaxRollouts) + " rollouts; tree " +
                                std::to_string(tree) + " is full");
  ++pending_[leaf];
  for (NodeId node = leaf; node != kNoNode; node = nodes_.parent[node]) ++nodes_.in_flight[node];
  return {AskStatus::kOk, leaf};
}

AskStatus Forest::ask_tree(TreeId tree, std::size_t n, Leaves& leaves) {
  for (std::size_t i = 0; i < n; ++i) {
    const auto [status, leaf] = ask_one(tree);
    if (status != AskStatus::kOk) return status;
    try {
      leaves.tree.push_back(tree);
      leaves.depth.push_back(nodes_.depth[leaf]);
      leaves.node.push_back(leaf);  // last: what undoing looks at
    } catch (...) {
      cancel(std::span(&leaf, 1));
      throw;
    }
  }
  return AskStatus::kOk;
}

Leaves Forest::ask(std::span<const TreeId> trees, std::size_t n) {
  if (n < 1) throw std::invalid_argument("n must be at least 1; got 0");
  for (const TreeId tree : trees) check_tree(tree);
  Leaves leaves;
  leaves.status.reserve(trees.size());
  try {
    for (const TreeId tree : trees) leaves.status.push_back(static_cast<std::uint8_t>(ask_tree(tree, n, leaves)));
  } catch (...) {
    cancel(leaves.node);
    throw;
  }
  return leaves;
}

void Forest::extend(std::span<const NodeId> nodes) {
  for (const NodeId node : nodes) {
    check_node(node);
    if (nodes_.parent[node] == kNoNode)
      throw std::invalid_argument(describe(node) + " must have a parent; got a root");
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const NodeId parent = nodes_.parent[nodes[i]];
    if (pending_[parent] == 0) {
      while (i-- > 0) {
        --pending_[nodes[i]], --nodes_.in_flight[nodes[i]];
        ++pending_[nodes_.parent[nodes[i]]];
      }
      throw std::invalid_argument("a rollout must be pending at " + describe(parent) +
                                  ", the parent of each node to extend to; got none left");
    }
    --pending_[parent];
    ++pending_[nodes[i]], ++nodes_.in_flight[nodes[i]];
  }
}

std::vector<NodeId> Forest::expand(std::span<const NodeId> nodes, std::span<const std::uint32_t> widths,
                                   std::span<const float> critic_values, std::span<const float> logps) {
  check_length("widths", widths.size(), "node", nodes.size());
  std::size_t total = 0;
  for (const std::uint32_t width : widths) {
    if (width < 1) throw std::invalid_argument("widths must be at least 1; got 0");
    total += width;
  }
  check_length("critic_values", critic_values.size(), "child", total);
  check_length("logps", logps.size(), "child", total);
  for (const float value : critic_values)
    if (!std::isfinite(value))
      throw std::invalid_argument("critic_values must be finite; got " + std::to_string(value));
  for (const NodeId node : nodes) check_node(node);
  reserve(total);
  std::vector<NodeId> first(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const NodeId node = nodes[i];
    const bool terminal = (nodes_.flags[node] & kTerminal) != 0;
    if (terminal || !is_leaf(node)) {
      const std::string got = terminal ? "a terminal node" : std::to_string(nodes_.child_count[node]) + " children";
      while (i-- > 0) nodes_.child_count[nodes[i]] = 0;
      throw std::invalid_argument(describe(node) + " must be a leaf to be expanded, and once a call; got " + got);
    }
    nodes_.child_count[node] = widths[i];
  }
  std::size_t done = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const NodeId node = nodes[i];
    first[i] = nodes_.first_child[node] = static_cast<NodeId>(num_nodes());
    append(widths[i], node, nodes_.tree[node], nodes_.depth[node] + 1);
    std::copy_n(critic_values.data() + done, widths[i], nodes_.critic_value.data() + first[i]);
    std::copy_n(logps.data() + done, widths[i], nodes_.logp.data() + first[i]);
    done += widths[i];
  }
  return first;
}

void Forest::set_terminal(std::span<const NodeId> nodes) {
  for (const NodeId node : nodes) {
    check_node(node);
    if (!is_leaf(node))
      throw std::invalid_argument(describe(node) + " must be a leaf to be terminal; got " +
                                  std::to_string(nodes_.child_count[node]) + " children");
  }
  for (const NodeId node : nodes) nodes_.flags[node] |= kTerminal;
}

/// Takes one pending rollout from each node, or throws and takes none.
void Forest::take_pending(std::span<const NodeId> nodes, const char* call) {
  for (const NodeId node : nodes) check_node(node);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const NodeId node = nodes[i];
    if (pending_[node] == 0) {
      while (i-- > 0) ++pending_[nodes[i]];
      throw std::invalid_argument("a rollout must be pending at " + describe(node) + " to " + call +
                                  " it; got none left");
    }
    --pending_[node];
  }
}

/// Marks a node whose children, if any, are all exhausted, then goes on at its parent.
void Forest::mark_exhausted(NodeId node) noexcept {
  for (; node != kNoNode && !is_exhausted(node); node = nodes_.parent[node]) {
    const NodeId end = nodes_.first_child[node] + nodes_.child_count[node];
    for (NodeId child = nodes_.first_child[node]; child < end; ++child)
      if (!is_exhausted(child)) return;
    nodes_.flags[node] |= kExhausted;
  }
}

void Forest::tell(std::span<const NodeId> nodes, std::span<const double> returns) {
  check_length("returns", returns.size(), "node", nodes.size());
  for (const double value : returns)
    if (!std::isfinite(value)) throw std::invalid_argument("returns must be finite; got " + std::to_string(value));
  take_pending(nodes, "tell");
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (NodeId node = nodes[i]; node != kNoNode; node = nodes_.parent[node]) {
      ++nodes_.visit_count[node];
      nodes_.value_sum[node] += returns[i];
      --nodes_.in_flight[node];
    }
    if (config_.exhaust && (nodes_.flags[nodes[i]] & kTerminal) != 0) mark_exhausted(nodes[i]);
  }
}

void Forest::cancel(std::span<const NodeId> nodes) {
  take_pending(nodes, "cancel");
  for (NodeId node : nodes)
    for (; node != kNoNode; node = nodes_.parent[node]) --nodes_.in_flight[node];
}

std::vector<NodeId> Forest::path(NodeId node) const {
  check_node(node);
  std::vector<NodeId> path(static_cast<std::size_t>(nodes_.depth[node]) + 1);
  for (auto step = path.rbegin(); step != path.rend(); ++step, node = nodes_.parent[node]) *step = node;
  return path;
}

NodeId Forest::root(TreeId tree) const {
  check_tree(tree);
  return roots_[static_cast<std::size_t>(tree)];
}

std::vector<double> Forest::mean_value() const {
  std::vector<double> mean(num_nodes(), 0.0);
  for (std::size_t i = 0; i < mean.size(); ++i)
    if (nodes_.visit_count[i] > 0) mean[i] = nodes_.value_sum[i] / nodes_.visit_count[i];
  return mean;
}

}  // namespace agentq
