// Many search trees in one arena: their statistics, selection, backup, preference pairs and snapshots.
// Owns numbers; knows nothing of pages, texts, models, clocks or files.
//
//     ask ──► leaves, in flight ──► (the caller acts there) ──► expand ──► extend ──► ... ──► tell or cancel
//
//     tree 0            a node is a history; a node that is no root is also the action that led to it, at its parent
//        0              the children of a node are contiguous, best critic rank first
//      ┌─┼─┐            ids are global over the forest, given in order of birth: parent < child
//      2 3 4            first_child[0] = 2, child_count[0] = 3, parent[3] = 0
//
// A rollout is pending at one node and in flight on the whole path from there to the root. Until it is told it counts as
// a visit worth 0 ("virtual loss" 0), so that parallel rollouts spread out; cancelling it restores every number exactly.
// A call that throws has changed nothing. There is no randomness. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "csrc/column.h"
#include "csrc/score.h"

namespace agentq {

using NodeId = std::uint32_t;
using TreeId = std::int32_t;

inline constexpr NodeId kNoNode = 0xFFFFFFFFu;  // the parent of a root, the first child of a leaf

enum class Selection : std::uint8_t { kUcb1 = 0 };
enum class Unvisited : std::uint8_t {
  kFormula = 0,  // an edge without visits is scored like any other (Agent Q's 1 + N)
  kFirst = 1,    // an edge without visits goes first, lowest index first
};
enum class AskStatus : std::uint8_t {
  kOk = 0,         // n leaves found
  kExhausted = 1,  // the root is exhausted: every path was told to its end
  kBlocked = 2,    // selection met a leaf that is in flight; fewer than n leaves came back
};
enum Flag : std::uint8_t {
  kTerminal = 1,   // the episode ends here
  kExhausted = 2,  // nothing left to learn below: terminal and told, or all children exhausted
};

struct ForestConfig {
  Selection selection = Selection::kUcb1;
  double c_exp = 1.0;  // exploration constant, in reward units, finite and at least 0
  Unvisited unvisited = Unvisited::kFormula;
  bool exhaust = true;  // selection passes over exhausted nodes
};

/// What is known of every node, by node id.
struct NodeColumns {
  Column<NodeId> parent;
  Column<TreeId> tree;
  Column<NodeId> first_child;
  Column<std::uint32_t> child_count;
  Column<std::int32_t> depth;        // edges from the root
  Column<std::uint32_t> visit_count; // N: rollouts told through the node
  Column<double> value_sum;          // W: the sum of their returns
  Column<float> critic_value;        // in [0, 1] by custom: what the critic gave before any visit
  Column<float> logp;                // log pi_b(a | h) in nats; stored, not used
  Column<std::uint32_t> in_flight;   // rollouts through the node not yet told
  Column<std::uint8_t> flags;        // Flag

  /// Calls `visit` on every column, in this order.
  template <typename Visit>
  void each(Visit&& visit) {
    visit(parent), visit(tree), visit(first_child), visit(child_count), visit(depth), visit(visit_count);
    visit(value_sum), visit(critic_value), visit(logp), visit(in_flight), visit(flags);
  }
  template <typename Visit>
  void each(Visit&& visit) const {
    const_cast<NodeColumns*>(this)->each([&](const auto& column) { visit(column); });
  }
};

/// `M` leaves, those of one tree together; `status` has one entry per tree asked.
struct Leaves {
  std::vector<TreeId> tree;
  std::vector<NodeId> node;
  std::vector<std::int32_t> depth;
  std::vector<std::uint8_t> status;  // AskStatus
};

struct PairQuery {
  double alpha = 0.5;                    // weight of the search's mean value against the critic's, in [0, 1]
  double threshold = 0.0;                // least gap, at least 0
  std::uint32_t min_visits = 1;          // of both children
  std::uint32_t max_pairs_per_node = 0;  // 0: all
};

/// Parallel arrays: at `node`, its child `chosen` over its child `rejected`.
struct Pairs {
  std::vector<NodeId> node, chosen, rejected;
  std::vector<double> gap;  // > 0, in reward units
};

class Forest {
 public:
  /// @throws std::invalid_argument if c_exp is negative or not finite.
  explicit Forest(const ForestConfig& config);

  /// Plants `count` trees, each a root alone; tree ids go on from the last.
  std::vector<NodeId> add_trees(std::size_t count);

  /// Descends to up to `n` leaves of each tree and puts the path to each in flight.
  /// A leaf that is already in flight ends that tree's batch (a collision); a terminal leaf is a leaf like any other.
  Leaves ask(std::span<const TreeId> trees, std::size_t n);

  /// One leaf of one tree, in flight; no leaf unless the status is ok.
  std::pair<AskStatus, NodeId> ask_one(TreeId tree);

  /// Moves one rollout pending at the parent of each node down to the node; entries are taken in order.
  void extend(std::span<const NodeId> nodes);

  /// Gives each leaf its children, in the order of their critic rank.
  /// @param critic_values, logps  one entry a child, node after node; critic_values finite.
  /// @return  the first child of each node; the others follow it.
  std::vector<NodeId> expand(std::span<const NodeId> nodes, std::span<const std::uint32_t> widths,
                             std::span<const float> critic_values, std::span<const float> logps);

  /// Marks leaves in which the episode ended.
  void set_terminal(std::span<const NodeId> nodes);

  /// Ends one rollout pending at each node: N += 1, W += return, in_flight -= 1 from there to the root.
  void tell(std::span<const NodeId> nodes, std::span<const double> returns);

  /// Ends one rollout pending at each node as if it had never been asked: in_flight -= 1 from there to the root.
  void cancel(std::span<const NodeId> nodes);

  /// Every pair of children whose blended values differ by `threshold` or more, and at all.
  ///
  ///     Q(h, a) = alpha * W(h, a) / N(h, a) + (1 - alpha) * critic_value(h, a)        (W / N = 0 where N = 0)
  ///
  /// Nodes in order of id; within a node the largest gap first, ties by lower chosen, then lower rejected.
  /// Source: Putta et al. 2024, arXiv:2408.07199, eq. 10 and algorithm 1.
  /// @param trees  whose nodes to take; all when absent.
  Pairs pairs(const PairQuery& query, std::optional<std::span<const TreeId>> trees = {}) const;

  std::vector<NodeId> path(NodeId node) const;  // root .. node
  NodeId root(TreeId tree) const;
  std::vector<double> mean_value() const;  // W / N, 0 where N = 0

  std::size_t num_nodes() const noexcept { return nodes_.parent.size(); }
  std::size_t num_trees() const noexcept { return roots_.size(); }
  const ForestConfig& config() const noexcept { return config_; }
  const NodeColumns& columns() const noexcept { return nodes_; }

  /// Everything but what is in flight, which is saved as cancelled. Versioned, with a checksum.
  std::string to_bytes() const;
  /// @throws std::invalid_argument if the bytes are no snapshot, are damaged, or come from a newer version.
  static Forest from_bytes(std::span<const char> bytes);

 private:
  bool is_leaf(NodeId node) const noexcept { return nodes_.child_count[node] == 0; }
  bool is_exhausted(NodeId node) const noexcept { return (nodes_.flags[node] & kExhausted) != 0; }
  /// Rollouts started through a node: told and in flight.
  std::uint32_t started(NodeId node) const noexcept { return nodes_.visit_count[node] + nodes_.in_flight[node]; }

  NodeId select_child(NodeId node) const noexcept;
  AskStatus ask_tree(TreeId tree, std::size_t n, Leaves& leaves);
  void take_pending(std::span<const NodeId> nodes, const char* call);
  void mark_exhausted(NodeId node) noexcept;
  void reserve(std::size_t extra);
  void append(std::size_t count, NodeId parent, TreeId tree, std::int32_t depth) noexcept;
  void check_structure() const;
  void check_node(NodeId node) const;
  void check_tree(TreeId tree) const;

  ForestConfig config_;
  const CountTable* table_ = &CountTable::instance();
  NodeColumns nodes_;
  Column<std::uint32_t> pending_;  // rollouts that wait at the very node: in_flight less that of its children
  std::vector<NodeId> roots_;
};

}  // namespace agentq
