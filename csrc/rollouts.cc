// Rollouts in flight: moving them down, ending them, exhausting nodes.
#include <algorithm>
#include <stdexcept>

#include "csrc/check.h"
#include "csrc/lockstep.h"

namespace agentq {

void Forest::refuse(Ticket ticket, const char* call) {
  throw std::invalid_argument("a ticket must be in flight in this forest to " + std::string(call) +
                              " it, and is good once; got " + std::to_string(ticket));
}

void Forest::take(std::span<const Ticket> tickets, const char* call) {
  std::size_t done = 0;
  try {
    for (; done < tickets.size(); ++done) rollouts_[rollout_of(tickets[done], call)].ticket = ticket::kNone;
  } catch (...) {
    put_back(tickets.first(done));
    throw;
  }
}

void Forest::put_back(std::span<const Ticket> tickets) noexcept {
  for (const Ticket ticket : tickets) rollouts_[ticket::place(ticket)].ticket = ticket;
}

/// Puts a rollout's entry on the free list. Its ticket has been invalidated.
void Forest::close_rollout(std::uint32_t index) noexcept {
  Rollout& rollout = rollouts_[index];
  --trees_[static_cast<std::size_t>(rollout.tree)].open;
  rollout.node = free_rollout_;
  free_rollout_ = index;
  ++free_rollouts_;
}

/// Ends one pending rollout at the node. The caller updates the counts along the path.
void Forest::leave(NodeId node) noexcept {
  Slot& here = slot(node);
  if (link::is_leaf(here.link)) here.link -= link::kPendingOne;
}

/// Takes a pending rollout back.
void Forest::undo(NodeId at) noexcept {
  leave(at);
  if (const std::uint32_t word = slot(at).link; !link::is_leaf(word)) --header(link::block(word)).here;
  unstart(at);
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
      --slot(child).visits_started;
      leave(child);
      if (const std::uint32_t at = slot(child).link; !link::is_leaf(at)) --header(link::block(at)).here;
      ++header(link::block(slot(parent).link)).here;
      rollouts_[ticket::place(tickets[done])].node = parent;
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
  ++edge.visits_started;
  --header(link::block(slot(rollout.node).link)).here;
  rollout.node = child;
}

bool Forest::all_exhausted(NodeId block) const noexcept {
  bool all = true;
  for_children(block, [&](NodeId child) { all &= link::is_exhausted(slot(child).link); });
  return all;
}

/// Marks the node, and each ancestor whose children are all exhausted. A rule that goes wider never exhausts inner
/// nodes.
void Forest::mark_exhausted(NodeId node) noexcept {
  while (true) {
    slot(node).link |= link::kExhausted;
    node = parent_of(node);
    if (node == kNoNode || is_thompson() || !all_exhausted(link::block(slot(node).link))) return;
  }
}

/// Clears the exhausted mark of the node and its ancestors.
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
  take(tickets, "tell");
  for (std::size_t i = 0; i < tickets.size(); ++i) back_up(ticket::place(tickets[i]), returns[i]);
  for (const Ticket ticket : tickets) close_rollout(ticket::place(ticket));
}

void Forest::tell_one(Ticket ticket, double value) {
  if (!(value >= 0 && value <= 1)) check_returns(std::span<const double>(&value, 1));
  const std::uint32_t index = rollout_of(ticket, "tell");
  rollouts_[index].ticket = ticket::kNone;
  back_up(index, value);
  close_rollout(index);
}

/// Ends a rollout with a return. Its ticket has been invalidated.
void Forest::back_up(std::uint32_t index, double value) noexcept {
  const NodeId leaf = rollouts_[index].node;
  leave(leaf);
  add_return(leaf, block_of(leaf), value);
  if (config_.exhaust && (slot(leaf).link & (link::kLeaf | link::kTerminal)) == (link::kLeaf | link::kTerminal))
    mark_exhausted(leaf);
  free_again(index);
}

void Forest::cancel(std::span<const Ticket> tickets) {
  take(tickets, "cancel");
  for (const Ticket ticket : tickets) {
    const std::uint32_t index = ticket::place(ticket);
    undo(rollouts_[index].node);
    free_again(index);
    close_rollout(index);
  }
}

Forest::Counts Forest::in_flight() const {
  Counts counts;
  const auto count = [&](NodeId node) {
    for (; node != kNoNode; node = parent_of(node)) ++counts[node];
  };
  for (const Rollout& rollout : rollouts_)
    if (rollout.ticket != ticket::kNone)
      count(rollout.node);
  for (const Lockstep* steps : locksteps_) std::ranges::for_each(std::span(steps->node()).first(steps->size()), count);
  return counts;
}

std::size_t Forest::num_in_flight() const noexcept {
  std::size_t all = rollouts_.size() - free_rollouts_;
  for (const Lockstep* steps : locksteps_) all += steps->size();
  return all;
}

}  // namespace agentq
