// Best-first search: the tree's open leaf with the largest critic value comes next.
//
// Each tree keeps its open leaves in a heap. An entry may be stale, because its leaf is in flight or has children now.
// Stale entries are discarded when they are popped. A leaf that becomes free is pushed again. The push needs no
// allocation: the heap always has spare capacity for every rollout in flight.
#include <algorithm>

#include "csrc/forest.h"

namespace agentq {

/// The best open leaf of a tree. `busy`: this call has already put rollouts in flight there.
Found Forest::take_best(TreeId id, bool busy) noexcept {
  const Tree& tree = trees_[static_cast<std::size_t>(id)];
  std::vector<Open>& heap = open_[static_cast<std::size_t>(id)];
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const NodeId leaf = heap.back().node;
    heap.pop_back();
    if (!link::is_open(slot(leaf).link)) continue;
    slot(leaf).link += link::kPendingOne;
    std::int32_t depth = -1;
    for (NodeId node = leaf; node != kNoNode; node = parent_of(node), ++depth) ++slot(node).visits_started;
    return {AskStatus::kOk, leaf, depth};
  }
  return {busy || tree.open > 0 ? AskStatus::kBlocked : AskStatus::kExhausted, kNoNode};
}

/// Reserves heap space for `width` more open leaves of a tree.
void Forest::make_room(TreeId tree, std::size_t width) {
  std::vector<Open>& heap = open_[static_cast<std::size_t>(tree)];
  const std::size_t want = heap.size() + width + trees_[static_cast<std::size_t>(tree)].open + 1;
  if (want > heap.capacity()) heap.reserve(std::max(want, 2 * heap.capacity()));
}

void Forest::offer(TreeId tree, NodeId leaf) noexcept {
  std::vector<Open>& heap = open_[static_cast<std::size_t>(tree)];
  heap.push_back({at(critic_, leaf), leaf});
  std::push_heap(heap.begin(), heap.end());
}

/// Rebuilds the heap from all open leaves of a tree.
void Forest::offer_all(TreeId id) {
  const std::vector<NodeId> nodes = below(trees_[static_cast<std::size_t>(id)].root);
  open_[static_cast<std::size_t>(id)].clear();
  make_room(id, nodes.size());
  for (const NodeId node : nodes)
    if (link::is_open(slot(node).link)) offer(id, node);
}

/// Pushes a rollout's leaf back to the heap once no rollout is pending there.
void Forest::free_again(std::uint32_t index) noexcept {
  const auto [ticket, leaf, tree] = rollouts_[index];
  if (is_best_first() && link::is_open(slot(leaf).link)) offer(tree, leaf);
}

}  // namespace agentq
