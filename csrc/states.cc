// Nodes that are the same state: one pair of counts for all of them, beside the counts of each edge. And two trees as one.
#include <algorithm>
#include <stdexcept>

#include "csrc/check.h"
#include "csrc/forest.h"

namespace agentq {

void Forest::set_states(std::span<const NodeId> nodes, std::span<const std::uint64_t> keys) {
  check_length("keys", keys.size(), "node", nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    check_node(nodes[i]);
    if (state_of(nodes[i]) != 0 && state_at(tree_of(nodes[i]), nodes[i])->key != keys[i])
      throw std::invalid_argument("a node must be one state; " + describe(nodes[i]) + " is another already");
  }
  make_states();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    States& states = states_of(tree_of(nodes[i]));
    std::uint32_t& state = state_->as<std::uint32_t>()[nodes[i]];
    if (state != 0) continue;  // again, or listed twice
    state = states.find_or_add(keys[i], nothing()) + 1;
    State& same = states.list[state - 1];
    const Slot& here = slot(nodes[i]);
    same.started += here.started;
    same.value_sum = joined(config_.backup, same.value_sum, here.value_sum);
  }
}

void Forest::make_states() {
  if (state_) return;
  if (used_cells_ * (bytes_per_cell() + sizeof(std::uint32_t)) > config_.max_bytes)
    throw ByteLimit("states must fit max_bytes (" + std::to_string(config_.max_bytes) + "); they would pass it");
  states_.resize(trees_.size());
  state_ = Reserve::make(config_.max_bytes / sizeof(Cell) * sizeof(std::uint32_t));
  std::fill_n(state_->as<std::uint32_t>(), top_, 0u);
}

/// A rollout is in flight through the node and all above it (+1), or no longer (-1).
void Forest::count_states(TreeId tree, NodeId node, std::uint32_t more) noexcept {
  for (; node != kNoNode; node = parent_of(node))
    if (State* state = state_at(tree, node)) state->started += more;
}

/// The key of a node's state, if it has one.
std::optional<std::uint64_t> Forest::key_of(TreeId tree, NodeId node) const noexcept {
  const State* state = state_at(tree, node);
  return state == nullptr ? std::nullopt : std::optional(state->key);
}

std::span<const State> Forest::states(TreeId tree) const {
  live_tree(tree);
  if (!state_) return {};
  return states_[static_cast<std::size_t>(tree)].list;
}

/// A tree anew, its nodes together: those of the node `a` and, laid over them, of `b`, if it is one. Children are laid over
/// each other where their state is the same; the others of b come after those of a. Adds to `moved` where each node went.
NodeId Forest::lay_over(Tree& fresh, TreeId id, NodeId a, TreeId other, NodeId b, Moved& moved) {
  struct Entry {
    NodeId a, b, now;
  };
  std::vector<Entry> entries;  // parents before children
  const auto lay = [&](NodeId parent, std::uint32_t index, std::span<const Entry> some, std::uint32_t here) {
    const auto width = static_cast<std::uint32_t>(some.size());
    const NodeId block = claim(fresh, width, width);
    if (block == kNoNode) return false;
    lay_block(block, parent, index, width, here);
    for (std::size_t i = 0; i < some.size(); ++i) {
      const NodeId now = block + 1 + static_cast<NodeId>(i);
      entries.push_back({some[i].a, some[i].b, now});
      add_up(id, now, some[i].a, other, some[i].b);
      for (const NodeId old : {some[i].a, some[i].b})
        if (old != kNoNode) moved.old_ids.push_back(old), moved.new_ids.push_back(now);
    }
    return true;
  };
  std::vector<Entry> together{{a, b, kNoNode}};
  if (!lay(kNoNode, 0, together, static_cast<std::uint32_t>(id))) return kNoNode;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Entry entry = entries[i];
    std::uint32_t here = 0;
    together.clear();
    for (const NodeId old : {entry.a, entry.b}) {
      if (old == kNoNode) continue;
      const std::uint32_t word = slot(old).link;
      here += link::is_leaf(word) ? slot(old).started : header(link::block(word)).here;
      if (link::is_leaf(word)) continue;
      const auto of_a = static_cast<std::ptrdiff_t>(old == entry.b ? together.size() : 0);
      for_children(link::block(word), [&](NodeId child) {
        const auto end = together.begin() + of_a;
        const auto same = std::find_if(together.begin(), end, [&](const Entry& e) {
          return e.b == kNoNode && state_of(e.a) != 0 && key_of(id, e.a) == key_of(other, child);
        });
        if (same != end)
          same->b = child;
        else
          together.push_back(old == entry.b ? Entry{kNoNode, child, kNoNode} : Entry{child, kNoNode, kNoNode});
      });
    }
    if (together.empty()) continue;
    const std::uint32_t index = slot(entry.now).link & link::kIndex;
    const auto first = static_cast<std::uint32_t>(entries.size());
    if (together.size() > kMaxWidth || !lay(entry.now, index, together, here)) return kNoNode;
    slot(entry.now).link = (entries[first].now - 1) >> 1;
  }
  for (std::size_t i = entries.size(); i-- > 0;)
    if (const std::uint32_t word = slot(entries[i].now).link; !link::is_leaf(word) && config_.exhaust && !is_thompson() &&
                                                              all_exhausted(link::block(word)))
      slot(entries[i].now).link |= link::kExhausted;
  return entries[0].now;
}

/// What a node of the new tree has of one or two old ones, but for its children.
void Forest::add_up(TreeId id, NodeId now, NodeId a, TreeId other, NodeId b) {
  Slot& here = slot(now);
  for (const auto& column : {critic_, logp_, prior_})
    if (column) column->as<float>()[now] = column->as<float>()[a != kNoNode ? a : b];
  for (const NodeId old : {a, b}) {
    if (old == kNoNode) continue;
    const Slot& s = slot(old);
    here.value_sum = joined(config_.backup, here.value_sum, s.value_sum);
    here.started += s.started;
    if (link::is_leaf(s.link)) here.link |= s.link & (link::kExhausted | link::kTerminal);
    if (squares_) squares_->as<double>()[now] += squares_->as<double>()[old];
    if (successes_) successes_->as<std::uint32_t>()[now] += successes_->as<std::uint32_t>()[old];
    if (const auto key = key_of(old == a ? id : other, old); key && state_of(now) == 0)
      state_->as<std::uint32_t>()[now] = states_of(id).find_or_add(*key, nothing()) + 1;
  }
}

/// Puts a tree that lay_over makes in the place of `id`.
std::pair<std::vector<NodeId>, std::vector<NodeId>> Forest::replace(TreeId id, NodeId a, TreeId other, NodeId b) {
  Tree& tree = trees_[static_cast<std::size_t>(id)];
  Tree fresh;
  Moved moved;
  const std::uint64_t nodes_before = num_nodes_;
  const std::size_t states_before = state_ ? states_of(id).list.size() : 0;
  fresh.root = lay_over(fresh, id, a, other, b, moved);
  if (fresh.root == kNoNode) {
    free_chunks(fresh);
    num_nodes_ = nodes_before;
    for (std::size_t i = states_before; state_ && i < states_of(id).list.size(); ++i)
      states_of(id).index.erase(states_of(id).list[i].key);
    if (state_) states_of(id).list.resize(states_before);
    throw ByteLimit("old and new tree must fit max_bytes (" + std::to_string(config_.max_bytes) + ") together");
  }
  free_chunks(tree);
  num_nodes_ -= tree.nodes;
  fresh.reroots = tree.reroots, fresh.base = tree.base, fresh.stamp = tree.stamp;
  tree = fresh;
  return {std::move(moved.old_ids), std::move(moved.new_ids)};
}

std::pair<std::vector<NodeId>, std::vector<NodeId>> Forest::merge(TreeId id, TreeId other) {
  const Tree &tree = live_tree(id), &second = live_tree(other);
  if (id == other) throw std::invalid_argument("a tree must be merged with another; got tree " + std::to_string(id) + " twice");
  for (const TreeId each : {id, other})
    if (live_tree(each).open > 0)
      throw std::invalid_argument("nothing must be in flight in tree " + std::to_string(each) + " to merge it");
  if (slot(tree.root).started > kMaxRollouts - slot(second.root).started)
    throw std::invalid_argument("a tree must have at most " + std::to_string(kMaxRollouts) + " rollouts; trees " +
                                std::to_string(id) + " and " + std::to_string(other) + " have more together");
  const Slot roots[] = {slot(tree.root), slot(second.root)};
  const std::optional<std::uint64_t> keys[] = {key_of(id, tree.root), key_of(other, second.root)};
  auto moved = replace(id, tree.root, other, second.root);
  const auto add = [&](State& same, double sum, std::uint32_t started) {
    same.started += started;
    same.value_sum = joined(config_.backup, same.value_sum, sum);
  };
  if (const auto key = key_of(id, tree.root))  // what was told of a root that was no state, or another
    for (const int i : {0, 1})
      if (keys[i] != key) add(*state_at(id, tree.root), roots[i].value_sum, roots[i].started);
  if (state_)
    for (const State& state : states_of(other).list)
      add(states_of(id).list[states_of(id).find_or_add(state.key, nothing())], state.value_sum, state.started);
  drop(std::span(&other, 1));
  if (is_best_first()) offer_all(id);
  return moved;
}

std::pair<std::vector<NodeId>, std::vector<NodeId>> Forest::reroot(TreeId id, NodeId node) {
  Tree& tree = live_tree(id);
  check_node(node);
  if (tree.open > 0) throw std::invalid_argument("nothing must be in flight in tree " + std::to_string(id) + " to re-root it");
  if (tree_of(node) != id)
    throw std::invalid_argument(describe(node) + " must be in tree " + std::to_string(id) + " to be its root");
  auto moved = replace(id, node, id, kNoNode);
  ++tree.reroots;
  const std::uint32_t top = slot(tree.root).link;
  tree.base = link::is_leaf(top) ? 0 : slot(tree.root).started - header(link::block(top)).here;
  if (is_best_first()) offer_all(id);
  return moved;
}

}  // namespace agentq
