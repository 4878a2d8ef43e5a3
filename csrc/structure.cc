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
  t.visit_count.resize(n), t.in_flight.resize(n), t.value_sum.resize(n), t.square_sum.resize(squares_ ? n : 0);
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

void Forest::prune(NodeId node) {
  check_node(node);
  if (link::is_leaf(slot(node).link)) return;
  if (in_flight().contains(node))
    throw std::invalid_argument("nothing must be in flight through " + describe(node) + " to prune it");
  NodeId top = node;
  while (parent_of(top) != kNoNode) top = parent_of(top);
  Tree& tree = *std::find_if(trees_.begin(), trees_.end(), [top](const Tree& t) { return t.root == top; });
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
  if (is_best_first()) offer_all(static_cast<TreeId>(&tree - trees_.data()));
}

std::pair<std::vector<NodeId>, std::vector<NodeId>> Forest::reroot(TreeId id, NodeId node) {
  Tree& tree = live_tree(id);
  check_node(node);
  if (tree.open > 0) throw std::invalid_argument("nothing must be in flight in tree " + std::to_string(id) + " to re-root it");
  if (path(node).front() != tree.root)
    throw std::invalid_argument(describe(node) + " must be in tree " + std::to_string(id) + " to be its root");
  std::vector<NodeId> old = below(node), now(old.size());
  Tree fresh;
  const std::uint64_t nodes_before = num_nodes_;
  const auto copy = [&](NodeId from, NodeId to) {  // all but the word that says where it lies
    slot(to).value_sum = slot(from).value_sum;
    slot(to).started = slot(from).started;
    slot(to).link |= slot(from).link & (link::is_leaf(slot(from).link) ? link::kExhausted | link::kTerminal : 0);
    for (const auto& column : {critic_, logp_, prior_})
      if (column) column->as<float>()[to] = column->as<float>()[from];
    if (squares_) squares_->as<double>()[to] = squares_->as<double>()[from];
  };
  std::size_t next = 1;
  for (std::size_t i = 0; i <= old.size(); ++i) {  // the root's own block, then each inner node's
    const bool is_root = i == 0;
    const std::uint32_t word = is_root ? 0 : slot(old[i - 1]).link;
    if (!is_root && link::is_leaf(word)) continue;
    const std::uint32_t width = is_root ? 1 : children_of(old[i - 1]);
    const NodeId block = allocate(fresh, width);
    if (block == kNoNode) {
      free_chunks(fresh);
      num_nodes_ = nodes_before;
      throw ByteLimit("old and new tree must fit max_bytes (" + std::to_string(config_.max_bytes) + ") together");
    }
    if (is_root) {
      lay_block(block, kNoNode, 0, 1, 0);
      copy(node, now[0] = block + 1);
      continue;
    }
    Slot& parent = slot(now[i - 1]);
    lay_block(block, now[i - 1], parent.link & link::kIndex, width, header(link::block(word)).here);
    parent.link = block >> 1 | (word & link::kExhausted);
    for (std::uint32_t k = 0; k < width; ++k, ++next) copy(old[next], now[next] = block + 1 + k);
  }
  free_chunks(tree);
  num_nodes_ = nodes_before - tree.nodes + old.size();
  fresh.root = now[0];
  fresh.nodes = static_cast<std::uint32_t>(old.size());
  fresh.reroots = tree.reroots + 1;
  if (const Slot& top = slot(fresh.root); !link::is_leaf(top.link)) fresh.base = top.started - header(link::block(top.link)).here;
  tree = fresh;
  if (is_best_first()) offer_all(id);
  return {std::move(old), std::move(now)};
}

}  // namespace agentq
