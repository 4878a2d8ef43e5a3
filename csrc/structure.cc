// Looking at trees and cutting them.
#include <algorithm>
#include <stdexcept>

#include "csrc/check.h"
#include "csrc/forest.h"

namespace agentq {

std::vector<NodeId> Forest::children(NodeId node) const {
  check_node(node);
  std::vector<NodeId> ids;
  const std::uint32_t word = slot(node).link;
  if (!link::is_leaf(word)) for_children(link::block(word), [&](NodeId child) { ids.push_back(child); });
  return ids;
}

std::vector<NodeId> Forest::path(NodeId node) const {
  check_node(node);
  std::vector<NodeId> path;
  for (; node != kNoNode; node = parent_of(node)) path.push_back(node);
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<NodeId> Forest::below(NodeId node) const {
  std::vector<NodeId> nodes{node};
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const std::uint32_t word = slot(nodes[i]).link;
    if (link::is_leaf(word)) continue;
    for_children(link::block(word), [&](NodeId child) { nodes.push_back(child); });
  }
  return nodes;
}

TreeTable Forest::table(std::span<const TreeId> trees) const {
  const Counts counts = in_flight(), at_node = waiting();
  TreeTable t;
  for (const TreeId tree : trees) {
    const std::vector<NodeId> nodes = below(live_tree(tree).root);
    t.id.insert(t.id.end(), nodes.begin(), nodes.end());
    t.tree.resize(t.id.size(), tree);
  }
  const std::size_t n = t.id.size();
  if (n > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
    throw std::invalid_argument("a table must have fewer than 2^31 rows; got " + std::to_string(n));
  t.parent.assign(n, -1), t.depth.assign(n, 0);
  const bool is_mean = config_.backup == Backup::kMean;
  t.visit_count.resize(n), t.in_flight.resize(n), t.value_sum.resize(n), t.square_sum.resize(squares_ ? n : 0);
  t.own_count.resize(n), t.own_sum.resize(is_mean ? n : 0), t.successes.resize(successes_ ? n : 0), t.state.resize(n);
  t.critic_value.resize(n), t.logp.resize(n), t.prior.resize(n), t.flags.resize(n);
  std::size_t next = 0;
  for (std::size_t row = 0; row < n; ++row) {
    if (row == 0 || t.tree[row] != t.tree[row - 1]) next = row + 1;  // a root; its children are the next rows
    const NodeId node = t.id[row];
    const Slot& here = slot(node);
    t.in_flight[row] = count_of(counts, node);
    t.visit_count[row] = here.started - t.in_flight[row];
    t.value_sum[row] = here.value_sum == kNothing ? 0.0 : here.value_sum;
    if (squares_) t.square_sum[row] = squares_->as<double>()[node];
    t.critic_value[row] = at(critic_, node), t.logp[row] = at(logp_, node), t.prior[row] = at(prior_, node);
    t.flags[row] = link::is_exhausted(here.link) ? kExhausted : 0;
    if (successes_) t.successes[row] = successes_->as<std::uint32_t>()[node];
    t.state[row] = static_cast<std::int32_t>(state_of(node)) - 1;
    t.own_count[row] = here.started - count_of(at_node, node);
    if (is_mean) t.own_sum[row] = here.value_sum;
    if (link::is_leaf(here.link)) {
      if ((here.link & link::kTerminal) != 0) t.flags[row] |= kTerminal;
      continue;
    }
    t.own_count[row] = header(link::block(here.link)).here - count_of(at_node, node);
    if (is_mean)
      for_children(link::block(here.link),
                   [&](NodeId child) { t.own_sum[row] -= config_.discount * slot(child).value_sum; });
    for (std::uint32_t i = children_of(node); i > 0; --i, ++next) {
      t.parent[next] = static_cast<std::int32_t>(row);
      t.depth[next] = t.depth[row] + 1;
    }
  }
  return t;
}

void Forest::prune(NodeId node) {
  check_node(node);
  if (link::is_leaf(slot(node).link)) return;
  if (in_flight().contains(node))
    throw std::invalid_argument("nothing must be in flight through " + describe(node) + " to prune it");
  const TreeId id = tree_of(node);
  Tree& tree = trees_[static_cast<std::size_t>(id)];
  const std::vector<NodeId> cut = below(node);
  const std::uint32_t index = header(link::block(slot(node).link)).index;
  for (const NodeId inner : cut)
    if (const std::uint32_t word = slot(inner).link; !link::is_leaf(word))
      for (NodeId block = link::block(word); block != 0; block = header(block).next)
        heads_[block >> 7] &= ~(std::uint64_t{1} << (block >> 1 & 63));
  slot(node).link = link::kLeaf | index;
  num_nodes_ -= cut.size() - 1;
  tree.nodes -= static_cast<std::uint32_t>(cut.size() - 1);
  reopen(node);
  if (is_best_first()) offer_all(id);
}

void Forest::abandon(std::span<const Ticket> tickets) {
  if (!config_.exhaust) throw std::invalid_argument("exhaust must be on to abandon a leaf; got off");
  const std::vector<NodeId> leaves = nodes_of(tickets, "abandon");
  for (const NodeId leaf : leaves)
    if (!link::is_leaf(slot(leaf).link))
      throw std::invalid_argument(describe(leaf) + " must be a leaf to be abandoned; got " +
                                  std::to_string(children_of(leaf)) + " children");
  cancel(tickets);  // refuses a ticket that is listed twice
  for (const NodeId leaf : leaves) {
    slot(leaf).link |= link::kTerminal;
    mark_exhausted(leaf);
  }
}

}  // namespace agentq
