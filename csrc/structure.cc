// Tables of trees, and re-rooting.
#include <limits>
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

TreeTable Forest::table(std::span<const TreeId> trees) const {
  const Counts counts = in_flight();
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
  t.visit_count.resize(n), t.in_flight.resize(n), t.value_sum.resize(n);
  t.critic_value.resize(n), t.prior.resize(n), t.flags.resize(n);
  std::size_t next = 0;
  for (std::size_t row = 0; row < n; ++row) {
    if (row == 0 || t.tree[row] != t.tree[row - 1]) next = row + 1;  // a root; its children are the next rows
    const NodeId node = t.id[row];
    const Slot& here = slot(node);
    t.in_flight[row] = count_of(counts, node);
    t.visit_count[row] = here.visits_started - t.in_flight[row];
    t.value_sum[row] = here.value_sum;
    t.critic_value[row] = at(critic_, node), t.prior[row] = at(prior_, node);
    t.flags[row] = link::is_exhausted(here.link) ? kExhausted : 0;
    if (link::is_leaf(here.link)) {
      if ((here.link & link::kTerminal) != 0) t.flags[row] |= kTerminal;
      continue;
    }
    for (std::uint32_t i = children_of(node); i > 0; --i, ++next) {
      t.parent[next] = static_cast<std::int32_t>(row);
      t.depth[next] = t.depth[row] + 1;
    }
  }
  return t;
}

std::pair<std::vector<NodeId>, std::vector<NodeId>> Forest::reroot(TreeId id, NodeId node) {
  Tree& tree = live_tree(id);
  check_node(node);
  if (tree.open > 0) throw std::invalid_argument("nothing must be in flight in tree " + std::to_string(id) + " to re-root it");
  if (tree_of(node) != id)
    throw std::invalid_argument(describe(node) + " must be in tree " + std::to_string(id) + " to be its root");
  Chunks fresh;
  std::vector<NodeId> old_ids, new_ids;
  std::unordered_map<NodeId, NodeId> now;  // old to new id of inner nodes
  /// Copies a node's statistics and flags, but not its children.
  const auto copy = [&](NodeId old, NodeId to) {
    const Slot& s = slot(old);
    slot(to) = {s.value_sum, s.visits_started, link::kLeaf | (slot(to).link & link::kIndex)};
    if (link::is_leaf(s.link)) slot(to).link |= s.link & (link::kExhausted | link::kTerminal);
    for (const auto& column : {critic_, prior_})
      if (column) column->as<float>()[to] = column->as<float>()[old];
    if (squares_) squares_->as<double>()[to] = squares_->as<double>()[old];
    old_ids.push_back(old), new_ids.push_back(to);
    if (!link::is_leaf(s.link)) now[old] = to;
  };
  const auto claimed = [&](std::uint32_t width) {
    const NodeId block = claim(fresh, width, width);
    if (block != kNoNode) return block;
    num_nodes_ -= fresh.nodes;
    free_chunks(fresh);
    throw ByteLimit("old and new tree must fit max_bytes (" + std::to_string(max_bytes_) + ") together");
  };
  const NodeId root = claimed(1) + 1;
  lay_block(root - 1, kNoNode, 0, 1, static_cast<std::uint32_t>(id));
  copy(node, root);
  for (const NodeId inner : inner_by_block(node)) {
    const NodeId first = link::block(slot(inner).link), parent = now[inner], block = claimed(children_of(inner));
    Slot& above = slot(parent);
    lay_block(block, parent, above.link & link::kIndex, children_of(inner), header(first).here);
    above.link = block >> 1 | (slot(inner).link & link::kExhausted);
    NodeId to = block;
    for_children(first, [&](NodeId child) { copy(child, ++to); });
  }
  num_nodes_ -= tree.nodes;
  free_chunks(tree);
  static_cast<Chunks&>(tree) = fresh;
  tree.root = root;
  ++tree.reroots;
  const std::uint32_t top = slot(root).link;
  tree.base = link::is_leaf(top) ? 0 : slot(root).visits_started - header(link::block(top)).here;
  if (is_best_first()) offer_all(id);
  return {std::move(old_ids), std::move(new_ids)};
}

}  // namespace agentq
