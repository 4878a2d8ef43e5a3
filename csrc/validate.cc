#include "csrc/validate.h"

#include <algorithm>
#include <cmath>

#include "csrc/snapshot.h"

namespace agentq {

Validator::Validator(Forest& forest, std::span<const UsedChunk> chunks)
    : f_(forest), chunks_(chunks), memory_(Reserve::make_zeroed(forest.top_ / 16 + 64)),
      open_(memory_->as<std::uint64_t>()) {}

void Validator::run() {
  std::vector<UsedChunk> by_tree(chunks_.begin(), chunks_.end());
  std::stable_sort(by_tree.begin(), by_tree.end(), [](const auto& a, const auto& b) { return a.tree < b.tree; });
  for (std::size_t from = 0, end = 0; from < by_tree.size(); from = end) {
    while (end < by_tree.size() && by_tree[end].tree == by_tree[from].tree) ++end;
    tree(by_tree[from].tree, std::span(by_tree).subspan(from, end - from));
  }
}

/// A block may lie in what has been handed out of the tree's own chunks, behind their heads, and nowhere twice.
void Validator::tree(TreeId id, std::span<const UsedChunk> chunks) {
  for (const UsedChunk& chunk : chunks) mark(chunk.cell + 2, chunk.used, true);
  Forest::Tree& tree = f_.trees_[static_cast<std::size_t>(id)];
  inner_.clear();
  nodes_ = 1;
  states_ = f_.states(id);
  through_.assign(states_.size(), 0);
  const NodeId block = tree.root - 1;
  claim(block, cells_of(1));
  const Header& head = f_.header(block);
  if (head.parent != kNoNode || head.here != static_cast<std::uint32_t>(id) || head.next != 0 || head.width != 1 || head.index != 0)
    damaged("a root has a header that cannot be");
  f_.heads_[block >> 7] |= std::uint64_t{1} << (block >> 1 & 63);
  node(tree.root, 0);
  for (std::size_t i = 0; i < inner_.size(); ++i) children(inner_[i]);
  if (tree.base > f_.slot(tree.root).started || (tree.reroots == 0 && tree.base != 0))
    damaged("a tree has a root that cannot be");
  for (std::size_t i = 0; i < states_.size(); ++i)
    if (through_[i] > states_[i].started || (states_[i].started == 0 && states_[i].value_sum != f_.nothing()))
      damaged("a tree has a state that cannot be");
  tree.nodes = static_cast<std::uint32_t>(nodes_);
  f_.num_nodes_ += nodes_;
  for (const UsedChunk& chunk : chunks) mark(chunk.cell + 2, chunk.used, false);
}

/// The children of a node whose headers have been looked at.
void Validator::children(NodeId above) {
  const NodeId block = link::block(f_.slot(above).link);
  std::uint64_t through = f_.header(block).here;
  std::uint32_t index = 0;
  bool all_exhausted = true;
  double below = 0;
  for (NodeId run = block; run != 0; run = f_.header(run).next, index = 0)
    for (; index < f_.header(run).width; ++index) {
      const NodeId child = run + 1 + index;
      node(child, index);
      through += f_.slot(child).started;
      below += f_.slot(child).value_sum;
      all_exhausted &= link::is_exhausted(f_.slot(child).link);
    }
  if (through != f_.slot(above).started) damaged("the visits of a node and its children differ");
  const bool may_be = f_.config_.exhaust && !f_.is_thompson();  // where a rule goes wider no inner node ever is
  if (link::is_exhausted(f_.slot(above).link) != (may_be && all_exhausted)) damaged("a node has flags that cannot be");
  if (f_.config_.selection == Selection::kThompsonBeta) told_here(above, f_.config_.discount * below);
}

void Validator::node(NodeId node, std::uint32_t index) {
  const Slot& s = f_.slot(node);
  values(node);
  if (const std::uint32_t state = f_.state_of(node); state > states_.size())
    damaged("a node is a state that is missing");
  else if (state > 0)
    through_[state - 1] += s.started;
  if (!link::is_leaf(s.link)) return enter(node, index);
  if ((s.link & link::kPending) != 0) damaged("something is in flight");
  if ((s.link & link::kIndex) != index) damaged("a node has a place that cannot be");
  if (link::is_exhausted(s.link) && (!f_.config_.exhaust || (s.link & link::kTerminal) == 0))
    damaged("a node has flags that cannot be");
}

/// Sums of several returns may have run over; of one they cannot.
void Validator::values(NodeId node) const {
  const Slot& s = f_.slot(node);
  const bool is_max = f_.config_.backup == Backup::kMax, is_beta = f_.config_.selection == Selection::kThompsonBeta;
  if (s.started == 0 && s.value_sum != (is_max ? kNothing : 0.0)) damaged("a node without visits has a value");
  if (s.started > 0 && (is_max || s.started == 1) && !std::isfinite(s.value_sum)) damaged("a value is not finite");
  if (is_beta && !(s.value_sum >= 0 && s.value_sum <= s.started)) damaged("a value is out of range");
  for (const auto& column : {f_.critic_, f_.prior_})
    if (!std::isfinite(Forest::at(column, node))) damaged("a value is not finite");
  if (f_.successes_ && f_.successes_->as<std::uint32_t>()[node] > s.started) damaged("a value is out of range");
  if (!f_.squares_) return;
  const double squares = f_.squares_->as<double>()[node];
  if (!(squares >= 0) || (s.started == 0 && squares != 0)) damaged("a value is out of range");
}

/// Thompson draws from what was told at the node itself, which must be in [0, here] but for rounding.
void Validator::told_here(NodeId node, double below) const {
  const Slot& s = f_.slot(node);
  const double here = f_.header(link::block(s.link)).here, told = s.value_sum - below;
  const double slack = 1e-6 * (1.0 + static_cast<double>(s.started));
  if (!(told >= -slack && told <= here + slack)) damaged("a value is out of range");
}

/// The blocks of a node's children.
void Validator::enter(NodeId node, std::uint32_t index) {
  const NodeId first = link::block(f_.slot(node).link);
  std::uint32_t width = 0;
  NodeId block = first;
  do {
    claim(block, 2);  // before it is looked at
    const Header& head = f_.header(block);
    const std::uint32_t room = block == first ? room_of(head.width) : head.here;
    if (head.parent != node || head.index != index || head.width < 1) damaged("a block has a header that cannot be");
    if (block != first && (head.width > room || (room != 1 && room != width)))
      damaged("a block has a header that cannot be");
    if (head.next != 0 && head.width != room) damaged("a block has a header that cannot be");
    if (room > 1) claim(block + 2, cells_of(room) - 2);
    width += head.width;
    if (width > kMaxWidth) damaged("a node has too many children");
    f_.heads_[block >> 7] |= std::uint64_t{1} << (block >> 1 & 63);
    block = head.next;
  } while (block != 0);
  nodes_ += width;
  inner_.push_back(node);
}

void Validator::claim(NodeId block, std::uint32_t cells) {
  if (block % 2 != 0 || block >= f_.top_) damaged("a block lies where none can");
  for (std::uint32_t pair = block / 2; pair < (block + cells) / 2; ++pair)  // none is open from the top on
    if ((open_[pair >> 6] >> (pair & 63) & 1) == 0) damaged("a block lies where none can");
  mark(block, block + cells, false);
}

void Validator::mark(std::uint32_t from, std::uint32_t end, bool is_open) {
  for (std::uint32_t pair = from / 2; pair < end / 2;) {
    const std::uint32_t bits = std::min(64 - (pair & 63), end / 2 - pair);
    const std::uint64_t mask = (bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1) << (pair & 63);
    if (is_open)
      open_[pair >> 6] |= mask;
    else
      open_[pair >> 6] &= ~mask;
    pair += bits;
  }
}

}  // namespace agentq
