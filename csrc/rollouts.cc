// What happens to a rollout once it is in flight.
#include <algorithm>
#include <stdexcept>

#include "csrc/check.h"
#include "csrc/forest.h"

namespace agentq {
namespace {

/// The values of new children, `width` of them from `from` on; `otherwise` where none were given.
void fill(const std::shared_ptr<Reserve>& column, NodeId at, std::span<const float> values, std::size_t from,
          std::uint32_t width, float otherwise) {
  if (!column) return;
  if (values.empty())
    std::fill_n(column->as<float>() + at, width, otherwise);
  else
    std::copy_n(values.data() + from, width, column->as<float>() + at);
}

}  // namespace


std::uint32_t Forest::rollout_of(Ticket ticket, const char* call) const {
  const auto index = static_cast<std::uint32_t>(ticket);
  const auto generation = static_cast<std::uint32_t>(ticket >> 32);
  if (index >= rollouts_.size() || (generation & 1) == 0 || rollouts_[index].generation != generation)
    throw std::invalid_argument("a ticket must be in flight to " + std::string(call) + " it, and is good once; got " +
                                std::to_string(ticket));
  return index;
}

void Forest::take(std::span<const Ticket> tickets, const char* call) {
  std::size_t done = 0;
  try {
    for (; done < tickets.size(); ++done) ++rollouts_[rollout_of(tickets[done], call)].generation;
  } catch (...) {
    while (done-- > 0) --rollouts_[static_cast<std::uint32_t>(tickets[done])].generation;
    throw;
  }
}

/// Puts an entry whose generation has been raised on the free list.
void Forest::close_rollout(std::uint32_t index) noexcept {
  Rollout& rollout = rollouts_[index];
  --trees_[static_cast<std::size_t>(rollout.tree)].open;
  rollout.node = free_rollout_;
  free_rollout_ = index;
  ++free_rollouts_;
}

/// A rollout is no longer pending at the node; the counts of the path are the caller's.
void Forest::leave(NodeId node) noexcept {
  Slot& here = slot(node);
  if (link::is_leaf(here.link)) here.link -= link::kPendingOne;
}

std::vector<NodeId> Forest::nodes_of(std::span<const Ticket> tickets, const char* call) const {
  std::vector<NodeId> nodes(tickets.size());
  for (std::size_t i = 0; i < tickets.size(); ++i) nodes[i] = rollouts_[rollout_of(tickets[i], call)].node;
  return nodes;
}

std::vector<NodeId> Forest::extend(std::span<const Ticket> tickets, std::span<const std::uint32_t> ranks) {
  check_length("ranks", ranks.size(), "ticket", tickets.size());
  std::vector<NodeId> moved(tickets.size());
  const auto undo = [&](std::size_t done) {
    while (done-- > 0) {
      const NodeId child = moved[done], parent = parent_of(child);
      --slot(child).started;
      Rollout& rollout = rollouts_[static_cast<std::uint32_t>(tickets[done])];
      if (state_of(child) != 0) --states_of(rollout.tree).list[state_of(child) - 1].started;
      leave(child);
      if (const std::uint32_t at = slot(child).link; !link::is_leaf(at)) --header(link::block(at)).here;
      ++header(link::block(slot(parent).link)).here;
      rollout.node = parent;
    }
  };
  for (std::size_t i = 0; i < tickets.size(); ++i) {
    try {
      Rollout& rollout = rollouts_[rollout_of(tickets[i], "extend")];
      const std::uint32_t word = slot(rollout.node).link;
      const std::uint32_t width = children_of(rollout.node);
      if (ranks[i] >= width)
        throw std::invalid_argument("ranks must be below the children of " + describe(rollout.node) + " (" +
                                    std::to_string(width) + "); got " + std::to_string(ranks[i]));
      const NodeId child = child_at(link::block(word), ranks[i]);
      if (const std::uint32_t below = slot(child).link; link::is_leaf(below) && (below & link::kPending) == link::kPending)
        throw std::invalid_argument("fewer than 8192 rollouts must be pending at one leaf; got " + describe(child));
      step_down(rollout, moved[i] = child);
    } catch (...) {
      undo(i);
      throw;
    }
  }
  return moved;
}

/// Moves a rollout from an inner node to one of its children.
void Forest::step_down(Rollout& rollout, NodeId child) noexcept {
  Slot& edge = slot(child);
  if (link::is_leaf(edge.link))
    edge.link += link::kPendingOne;
  else
    ++header(link::block(edge.link)).here;
  ++edge.started;
  if (state_of(child) != 0) ++states_of(rollout.tree).list[state_of(child) - 1].started;
  --header(link::block(slot(rollout.node).link)).here;
  rollout.node = child;
}

/// The leaves that tickets are to expand, each once; or throws.
std::vector<NodeId> Forest::leaves_of(std::span<const Ticket> tickets) {
  std::vector<NodeId> leaves = nodes_of(tickets, "expand");
  std::size_t listed = 0;  // marked as terminal meanwhile
  for (; listed < leaves.size(); ++listed) {
    Slot& leaf = slot(leaves[listed]);
    if (!link::is_leaf(leaf.link) || (leaf.link & link::kTerminal) != 0) break;
    leaf.link |= link::kTerminal;
  }
  for (std::size_t i = 0; i < listed; ++i) slot(leaves[i]).link &= ~link::kTerminal;
  if (listed == leaves.size()) return leaves;
  const std::uint32_t children = children_of(leaves[listed]);
  throw std::invalid_argument(describe(leaves[listed]) + " must be a leaf to be expanded, and once a call; got " +
                              (children > 0 ? std::to_string(children) + " children" : "a terminal node, or the same twice"));
}

std::vector<NodeId> Forest::expand(std::span<const Ticket> tickets, std::span<const std::uint32_t> widths,
                                   std::span<const float> critic_values, std::span<const float> logps,
                                   std::span<const float> priors) {
  check_length("widths", widths.size(), "ticket", tickets.size());
  std::size_t total = 0;
  for (const std::uint32_t width : widths) {
    if (width < 1 || width > kMaxWidth)
      throw std::invalid_argument("widths must be in [1, " + std::to_string(kMaxWidth) + "]; got " +
                                  std::to_string(width));
    total += width;
  }
  if (!critic_values.empty()) check_length("critic_values", critic_values.size(), "child", total);
  if (!logps.empty()) check_length("logps", logps.size(), "child", total);
  if (!priors.empty()) check_length("priors", priors.size(), "child", total);
  check_finite("critic_values", critic_values);
  check_finite("priors", priors);
  std::vector<NodeId> nodes = leaves_of(tickets);
  if (is_best_first())
    for (const Ticket ticket : tickets) make_room(rollouts_[static_cast<std::uint32_t>(ticket)].tree, total);
  gather(tickets.size());
  make_columns(critic_values, logps, priors);

  std::vector<NodeId> first(tickets.size());
  std::vector<std::size_t> from(tickets.size());  // where the values of each begin
  for (std::size_t i = 0, done = 0; i < tickets.size(); done += widths[i++]) {
    Tree& tree = trees_[static_cast<std::size_t>(rollouts_[static_cast<std::uint32_t>(tickets[i])].tree)];
    const NodeId block = claim(tree, widths[i], widths[i]);
    first[i] = block == kNoNode ? kNoNode : block + 1;
    from[i] = done;
  }
  split(tickets.size(), tickets.size(), [&](Rows rows) {
    for (std::size_t i = rows.first; i < rows.last; ++i) {
      if (first[i] == kNoNode) continue;
      grow(nodes[i], first[i] - 1, widths[i]);
      fill(critic_, first[i], critic_values, from[i], widths[i], 0.0f);
      fill(logp_, first[i], logps, from[i], widths[i], 0.0f);
      fill(prior_, first[i], priors, from[i], widths[i], 1.0f / static_cast<float>(widths[i]));
    }
  });
  for (std::size_t i = 0; is_best_first() && i < tickets.size(); ++i)
    for (std::uint32_t k = 0; first[i] != kNoNode && k < widths[i]; ++k)
      offer(rollouts_[static_cast<std::uint32_t>(tickets[i])].tree, first[i] + k);
  return first;
}

/// Makes a claimed block the children of a leaf, their values not filled in.
void Forest::grow(NodeId leaf, NodeId block, std::uint32_t width) noexcept {
  Slot& here = slot(leaf);
  lay_block(block, leaf, here.link & link::kIndex, width, here.started);
  here.link = block >> 1;
}

NodeId Forest::expand_one(Ticket ticket, std::uint32_t width) {
  const Rollout& rollout = rollouts_[rollout_of(ticket, "expand")];
  const std::uint32_t word = slot(rollout.node).link;
  if (critic_ || logp_ || prior_ || is_best_first() || width < 1 || width > kMaxWidth || !link::is_leaf(word) ||
      (word & link::kTerminal) != 0)
    return expand(std::span(&ticket, 1), std::span(&width, 1), {}, {}, {})[0];  // fills values in, or says what is wrong
  const NodeId block = claim(trees_[static_cast<std::size_t>(rollout.tree)], width, width);
  if (block == kNoNode) return kNoNode;
  grow(rollout.node, block, width);
  return block + 1;
}

/// One more child of a node, its values not filled in; kNoNode at the byte limit. Further blocks double a node's room.
NodeId Forest::append(NodeId node, TreeId id) {
  Tree& tree = trees_[static_cast<std::size_t>(id)];
  if (link::is_leaf(slot(node).link)) {
    const NodeId block = claim(tree, 1, 1);
    if (block == kNoNode) return kNoNode;
    grow(node, block, 1);
    return block + 1;
  }
  const NodeId first = link::block(slot(node).link);
  NodeId last = first;
  while (header(last).next != 0) last = header(last).next;
  Header& head = header(last);
  const std::uint32_t room = last == first ? room_of(head.width) : head.here;
  if (head.width < room) {
    const NodeId child = last + 1 + head.width;
    lay_slot(child, head.width++);
    ++tree.nodes, ++num_nodes_;
    return child;
  }
  std::uint32_t more = std::min(children_of(node), kMaxWidth);
  NodeId block = claim(tree, more, 1);
  if (block == kNoNode) block = claim(tree, more = 1, 1);
  if (block == kNoNode) return kNoNode;
  lay_block(block, node, header(first).index, 1, more);
  header(last).next = block;
  return block + 1;
}

std::vector<NodeId> Forest::widen(std::span<const Ticket> tickets, std::span<const float> critic_values,
                                  std::span<const float> logps, std::span<const float> priors) {
  if (!critic_values.empty()) check_length("critic_values", critic_values.size(), "ticket", tickets.size());
  if (!logps.empty()) check_length("logps", logps.size(), "ticket", tickets.size());
  if (!priors.empty()) check_length("priors", priors.size(), "ticket", tickets.size());
  check_finite("critic_values", critic_values);
  check_finite("priors", priors);
  take(tickets, "widen");  // each once
  for (const Ticket ticket : tickets) --rollouts_[static_cast<std::uint32_t>(ticket)].generation;
  std::vector<NodeId> nodes = nodes_of(tickets);
  for (const NodeId node : nodes) {
    const std::uint32_t word = slot(node).link, width = children_of(node);
    if (link::is_leaf(word) && (word & link::kTerminal) != 0)
      throw std::invalid_argument(describe(node) + " must not be terminal to be widened");
    if (width + tickets.size() > kMaxWidth)
      throw std::invalid_argument("a node must have at most " + std::to_string(kMaxWidth) + " children; " +
                                  describe(node) + " has " + std::to_string(width));
  }
  if (is_best_first())
    for (const Ticket ticket : tickets) make_room(rollouts_[static_cast<std::uint32_t>(ticket)].tree, tickets.size());
  make_columns(critic_values, logps, priors);
  for (std::size_t i = 0; i < tickets.size(); ++i) {
    Rollout& rollout = rollouts_[static_cast<std::uint32_t>(tickets[i])];
    const NodeId child = append(nodes[i], rollout.tree);
    if (child != kNoNode) {
      fill(critic_, child, critic_values, i, 1, 0.0f);
      fill(logp_, child, logps, i, 1, 0.0f);
      fill(prior_, child, priors, i, 1, 1.0f / static_cast<float>(children_of(nodes[i])));
      reopen(nodes[i]);
      step_down(rollout, child);
    }
    nodes[i] = child;
  }
  return nodes;
}

void Forest::set_terminal(std::span<const Ticket> tickets) {
  const std::vector<NodeId> nodes = nodes_of(tickets, "end");
  for (const NodeId node : nodes)
    if (!link::is_leaf(slot(node).link))
      throw std::invalid_argument(describe(node) + " must be a leaf to be terminal; got " +
                                  std::to_string(children_of(node)) + " children");
  for (const NodeId node : nodes) slot(node).link |= link::kTerminal;
}

bool Forest::all_exhausted(NodeId block) const noexcept {
  bool all = true;
  for_children(block, [&](NodeId child) { all &= link::is_exhausted(slot(child).link); });
  return all;
}

/// The node, and every node above it whose children all are; where a rule goes wider by itself no inner node ever is.
void Forest::mark_exhausted(NodeId node) noexcept {
  while (true) {
    slot(node).link |= link::kExhausted;
    node = parent_of(node);
    if (node == kNoNode || is_thompson() || !all_exhausted(link::block(slot(node).link))) return;
  }
}

/// The node and those above it are not exhausted any more.
void Forest::reopen(NodeId node) noexcept {
  for (; node != kNoNode; node = parent_of(node)) slot(node).link &= ~link::kExhausted;
}

void Forest::check_returns(std::span<const double> returns) const {
  const bool is_beta = config_.selection == Selection::kThompsonBeta;
  for (const double value : returns)
    if (!std::isfinite(value) || (is_beta && !(value >= 0 && value <= 1)))
      throw std::invalid_argument(std::string("returns must be ") +
                                  (is_beta ? "in [0, 1] with selection thompson_beta" : "finite") + "; got " +
                                  std::to_string(value));
}

void Forest::tell(std::span<const Ticket> tickets, std::span<const double> returns) {
  check_length("returns", returns.size(), "ticket", tickets.size());
  check_returns(returns);
  gather(tickets.size());
  take(tickets, "tell");
  if (crew_ == nullptr || tickets.size() < kWorthThreads) {
    for (std::size_t i = 0; i < tickets.size(); ++i) back_up(static_cast<std::uint32_t>(tickets[i]), returns[i]);
  } else {  // each thread takes some of the trees, so that the returns of one tree are told in order
    crew_->run([&](std::uint32_t k) noexcept {
      for (std::size_t i = 0; i < tickets.size(); ++i)
        if (const auto index = static_cast<std::uint32_t>(tickets[i]);
            static_cast<std::uint32_t>(rollouts_[index].tree) % crew_->size() == k)
          back_up(index, returns[i]);
    });
  }
  for (const Ticket ticket : tickets) close_rollout(static_cast<std::uint32_t>(ticket));
}

void Forest::tell_one(Ticket ticket, double value) {
  if (!(value >= 0 && value <= 1)) check_returns(std::span<const double>(&value, 1));
  const std::uint32_t index = rollout_of(ticket, "tell");
  ++rollouts_[index].generation;
  back_up(index, value);
  close_rollout(index);
}

/// What a return tells of a node beside W.
void Forest::keep(TreeId tree, NodeId node, double value, bool success) noexcept {
  if (squares_) squares_->as<double>()[node] += value * value;
  if (successes_) successes_->as<std::uint32_t>()[node] += success;
  if (const std::uint32_t state = state_of(node); state != 0) {
    double& sum = states_of(tree).list[state - 1].value_sum;
    sum = config_.backup == Backup::kMax ? std::max(sum, value) : sum + value;
  }
}

/// Ends a rollout whose generation has been raised with a return.
void Forest::back_up(std::uint32_t index, double value) noexcept {
  const NodeId leaf = rollouts_[index].node;
  const bool is_max = config_.backup == Backup::kMax;
  const double discount = config_.discount;
  leave(leaf);
  const bool keeps_more = squares_ || successes_ || state_;
  const bool success = value >= config_.success_at;
  for (NodeId node = leaf, block = block_of(leaf);; value *= discount) {
    double& sum = slot(node).value_sum;
    sum = is_max ? std::max(sum, value) : sum + value;
    if (keeps_more) keep(rollouts_[index].tree, node, value, success);
    const Header& above = header(block);
    node = above.parent;
    if (node == kNoNode) break;
    block = node - 1 - above.index;
  }
  if (config_.exhaust && (slot(leaf).link & (link::kLeaf | link::kTerminal)) == (link::kLeaf | link::kTerminal))
    mark_exhausted(leaf);
  free_again(index);
}

void Forest::cancel(std::span<const Ticket> tickets) {
  take(tickets, "cancel");
  for (const Ticket ticket : tickets) {
    const auto index = static_cast<std::uint32_t>(ticket);
    const NodeId at = rollouts_[index].node;
    leave(at);
    if (const std::uint32_t word = slot(at).link; !link::is_leaf(word)) --header(link::block(word)).here;
    unstart(at);
    if (state_) count_states(rollouts_[index].tree, at, -1u);
    free_again(index);
    close_rollout(index);
  }
}

/// A leaf that no rollout waits at any more is open to best-first search.
void Forest::free_again(std::uint32_t index) noexcept {
  const auto [leaf, tree, generation] = rollouts_[index];
  if (is_best_first() && link::is_open(slot(leaf).link)) offer(tree, leaf);
}

Forest::Counts Forest::waiting() const {
  Counts counts;
  for (const Rollout& rollout : rollouts_)
    if ((rollout.generation & 1) != 0) ++counts[rollout.node];
  return counts;
}

Forest::Counts Forest::in_flight() const {
  Counts counts;
  for (const Rollout& rollout : rollouts_)
    if ((rollout.generation & 1) != 0)
      for (NodeId node = rollout.node; node != kNoNode; node = parent_of(node)) ++counts[node];
  return counts;
}

}  // namespace agentq
