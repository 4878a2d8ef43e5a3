// Growing trees: children for leaves, further children for inner nodes, terminal marks.
#include <algorithm>
#include <stdexcept>

#include "csrc/check.h"
#include "csrc/forest.h"

namespace agentq {
namespace {

/// Stores the values of `width` new children, read from index `from`; `otherwise` if none were given.
void fill(const std::shared_ptr<Reserve>& column, NodeId at, std::span<const float> values, std::size_t from,
          std::uint32_t width, float otherwise) {
  if (!column) return;
  if (values.empty())
    std::fill_n(column->as<float>() + at, width, otherwise);
  else
    std::copy_n(values.data() + from, width, column->as<float>() + at);
}

/// Checks that each kind of value is either absent or given for every new child, one per `per`.
void check_values(std::span<const float> critic_values, std::span<const float> priors, const char* per,
                  std::size_t children) {
  if (!critic_values.empty()) check_length("critic_values", critic_values.size(), per, children);
  if (!priors.empty()) check_length("priors", priors.size(), per, children);
  check_finite("critic_values", critic_values);
  check_finite("priors", priors);
}

}  // namespace

/// The leaves that the tickets expand. Throws if one is not a leaf or is listed twice.
std::vector<NodeId> Forest::leaves_of(std::span<const Ticket> tickets) {
  std::vector<NodeId> leaves = nodes_of(tickets, "expand");
  std::size_t listed = 0;  // these leaves are marked terminal meanwhile
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
                                   std::span<const float> critic_values, std::span<const float> priors) {
  check_length("widths", widths.size(), "ticket", tickets.size());
  std::size_t total = 0;
  for (const std::uint32_t width : widths) {
    if (width < 1 || width > kMaxWidth)
      throw std::invalid_argument("widths must be in [1, " + std::to_string(kMaxWidth) + "]; got " +
                                  std::to_string(width));
    total += width;
  }
  check_values(critic_values, priors, "child", total);
  std::vector<NodeId> nodes = leaves_of(tickets);
  if (is_best_first())
    for (const Ticket ticket : tickets) make_room(rollout(ticket).tree, total);
  make_columns(critic_values, priors);

  std::vector<NodeId> first(tickets.size());
  for (std::size_t i = 0, from = 0; i < tickets.size(); from += widths[i++]) {
    const TreeId tree = rollout(tickets[i]).tree;
    const NodeId block = claim(trees_[static_cast<std::size_t>(tree)], widths[i], widths[i]);
    first[i] = block == kNoNode ? kNoNode : block + 1;
    if (block == kNoNode) continue;
    grow(nodes[i], block, widths[i]);
    fill(critic_, first[i], critic_values, from, widths[i], 0.0f);
    fill(prior_, first[i], priors, from, widths[i], 1.0f / static_cast<float>(widths[i]));
    for (std::uint32_t k = 0; is_best_first() && k < widths[i]; ++k) offer(tree, first[i] + k);
  }
  return first;
}

std::optional<NodeId> Forest::expand_one(Ticket ticket, std::uint32_t width) {
  const Rollout& rollout = rollouts_[rollout_of(ticket, "expand")];
  const std::uint32_t word = slot(rollout.node).link;
  if (critic_ || prior_ || is_best_first() || width < 1 || width > kMaxWidth || !link::is_leaf(word) ||
      (word & link::kTerminal) != 0) {
    const NodeId first = expand(std::span(&ticket, 1), std::span(&width, 1))[0];  // sets values, or throws
    return first == kNoNode ? std::nullopt : std::optional(first);
  }
  const NodeId block = claim(trees_[static_cast<std::size_t>(rollout.tree)], width, width);
  if (block == kNoNode) return {};
  grow(rollout.node, block, width);
  return block + 1;
}

/// Appends a child to a node without setting its values; kNoNode at the byte limit. Further blocks double a node's
/// room.
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
                                  std::span<const float> priors) {
  check_values(critic_values, priors, "ticket", tickets.size());
  take(tickets, "widen");  // each once
  put_back(tickets);
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
    for (const Ticket ticket : tickets) make_room(rollout(ticket).tree, tickets.size());
  make_columns(critic_values, priors);
  for (std::size_t i = 0; i < tickets.size(); ++i) {
    Rollout& rollout = rollouts_[ticket::place(tickets[i])];
    const NodeId child = append(nodes[i], rollout.tree);
    if (child != kNoNode) {
      fill(critic_, child, critic_values, i, 1, 0.0f);
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
