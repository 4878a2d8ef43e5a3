// Many search trees in one arena: their statistics, selection, backup and snapshots. Owns numbers, never text.
//
// A node is a history. A node other than a root is also the action, taken at its parent, that led to it. Everything is
// stored in cells of 16 bytes: a node is a cell, its children are a block. A node's id is its cell number, below 2^31.
//
//     chunk of a tree     cell  64 65 | 66 67 68 69 | 70 71 72 | 73 ..         at least 2^5 cells, twice as many each time
//                               list  | H  a  b  c  | H  d  e  | free          list: next chunk, log2 of cells
//                                           '---------^                        d, e: the children of b
//
//                         bits  63             32 31             0 63                32 31                  0
//     slot (a node)             | value_sum W, a double           | visits_started     | link                |
//     header H (of children)    | parent      | here              | next block, 0: none| width 16 | index 16 |
//
//     link, inner node          | 31: 0 | 30: exhausted | 29 .. 0: cell of its children's block / 2             |
//     link, leaf                | 31: 1 | 30: exhausted | 29: terminal | 28 .. 16: pending | 15 .. 0: index     |
//
// Pending: the number of rollouts waiting at the leaf. Index: the node's position in its block. The block's header,
// which names the parent, is index + 1 cells before the node. An inner node keeps its index in the header of its
// children. Children that `widen` adds are in further blocks.
//
// One simulation:
//
//     ask ──► a ticket; the path to a leaf is in flight ──► the caller acts at the leaf, asks its model ──► expand
//      ▲       visits_started += 1 from root to leaf         (extend goes one level down, and so on)          │
//      └─────────── W += return from leaf to root (tell), or everything as before (cancel) ◄─────────────────┘
//
// A rollout is pending at one node and in flight on the whole path from there to the root. Until it is told, it counts
// as a visit worth 0 ("virtual loss" 0), so parallel rollouts spread out. A ticket names one rollout of one forest and
// is valid once. A call that throws has changed nothing. All randomness comes from the seed, except ticket numbers.
//
// What it does not do:
//   - call a model or an environment, hold text, read a clock or touch a file
//   - start threads or lock: one thread at a time
//   - share nodes between paths (no transpositions), merge trees or cut branches; it offers only `reroot` and `drop`
//   - discount returns, back up a maximum, or forget old returns: W / N is the mean of all returns told
//   - make preference pairs, which need text (agentq.credit.pairs)
//   - save rollouts in flight: a snapshot treats them as cancelled
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/batch.h"
#include "csrc/memory.h"
#include "csrc/score.h"
#include "csrc/settings.h"

namespace agentq {

class Draws;
class Lockstep;

inline constexpr std::uint32_t kMaxRollouts = 0xFFFFFFFFu;  // per tree

class Forest : public Memory {
 public:
  /// @throws std::invalid_argument if a setting is out of range; ByteLimit if `max_bytes` cannot be reserved.
  explicit Forest(const ForestConfig& config);
  Forest(Forest&&) noexcept = default;
  Forest& operator=(Forest&&) noexcept = default;

  /// Adds `count` trees, each with only a root. Tree ids continue from the last one and are never reused.
  /// @throws ByteLimit if the trees would exceed `max_bytes`.
  std::vector<TreeId> add_trees(std::size_t count);

  /// Deletes trees. Their nodes cease to exist, their tickets are refused, and their memory is reused or returned.
  void drop(std::span<const TreeId> trees);

  /// Descends to up to `n` leaves of each tree and puts the path to each in flight. A tree may be listed once.
  /// A tree's batch ends at a leaf that is already in flight (a collision). A terminal leaf is a leaf like any other.
  Leaves ask(std::span<const TreeId> trees, std::size_t n);

  /// `ask` for one leaf of one tree. Empty if the tree is exhausted or selection met a leaf in flight; the status of
  /// `ask` distinguishes the two.
  std::optional<Leaf> ask_one(TreeId tree);

  /// Moves each rollout from its pending node to that node's child of the given rank.
  std::vector<NodeId> extend(std::span<const Ticket> tickets, std::span<const std::uint32_t> ranks);

  /// Gives the leaf of each ticket its children, in the order of their critic rank.
  /// @param critic_values, priors  one entry per child, node after node, finite; empty: 0, and 1 / width.
  /// @return  the first child of each leaf; the other children have the next ids. kNoNode if max_bytes leaves no room:
  ///          the node stays a leaf.
  std::vector<NodeId> expand(std::span<const Ticket> tickets, std::span<const std::uint32_t> widths,
                             std::span<const float> critic_values = {}, std::span<const float> priors = {});

  /// The same for one leaf, without values. Empty if there is no room.
  std::optional<NodeId> expand_one(Ticket ticket, std::uint32_t width);

  /// Appends one child to the node of each ticket and moves the rollout there. The node may be a leaf or have children.
  /// A ticket may be listed once. The node and its ancestors are no longer exhausted.
  /// @param critic_values, priors  one entry per ticket, finite; empty: 0, and 1 / children.
  /// @return  the new children. kNoNode if max_bytes leaves no room: the rollout stays where it is.
  std::vector<NodeId> widen(std::span<const Ticket> tickets, std::span<const float> critic_values = {},
                            std::span<const float> priors = {});

  /// Marks the leaf of each ticket as terminal: the episode ended there.
  void set_terminal(std::span<const Ticket> tickets);

  /// Ends rollouts: N += 1, W += return, in_flight -= 1 from their nodes to the root.
  void tell(std::span<const Ticket> tickets, std::span<const double> returns);

  void tell_one(Ticket ticket, double value);

  /// Ends rollouts as if they had never been asked.
  void cancel(std::span<const Ticket> tickets);

  /// Cancels rollouts and marks their leaves terminal and exhausted. No later rollout goes there.
  /// @throws std::invalid_argument if a ticket is not pending at a leaf, or nodes are never exhausted here.
  void abandon(std::span<const Ticket> tickets);

  /// The nodes where the rollouts are pending.
  std::vector<NodeId> nodes_of(std::span<const Ticket> tickets, const char* call = "find") const;

  /// Makes `node` the root of its tree, deletes the rest and compacts what is kept. Nothing may be in flight in the
  /// tree.
  /// @return  old and new ids of every node kept, parents first.
  std::pair<std::vector<NodeId>, std::vector<NodeId>> reroot(TreeId tree, NodeId node);

  TreeTable table(std::span<const TreeId> trees) const;
  std::vector<NodeId> children(NodeId node) const;  // in order; empty for a leaf

  /// The child of each tree's root to take. Children without a told return are skipped. The others are ordered by
  ///
  ///     1. the largest return of an ended episode told below it, since the same actions lead there again (with exhaust)
  ///     2. not exhausted before exhausted: below an exhausted child there is nothing better to find
  ///     3. the visit count, without rollouts in flight; then the mean value; then the lower index
  ///
  /// With kGumbel, g + log P + sigma(Q) replaces the mean value. kNoNode if nothing has been told.
  ///
  /// Source: 3. is AlphaZero's (Silver et al. 2017) and mctx's. Alone it fails when ended episodes are not visited
  /// again: a success found at once has one visit, and its failing siblings have more. 1. is the best line of
  /// single-player search (Schadd et al. 2008); in MCTS-Solver, too, a proven child wins (Winands et al. 2008). 2. is
  /// ours.
  std::vector<NodeId> recommend(std::span<const TreeId> trees) const;
  NodeId root(TreeId tree) const;
  std::vector<TreeId> trees() const;  // those not dropped

  std::size_t num_in_flight() const noexcept;
  const ForestConfig& config() const noexcept { return config_; }

  /// A snapshot of everything; rollouts in flight are saved as cancelled. snapshot.h draws the layout.
  std::string to_bytes() const;
  /// The same forest, laid out anew: nodes have other ids, in the same order if no node was widened.
  /// @throws std::invalid_argument if the bytes are no snapshot, are damaged, come from another version, or if the forest
  ///         had nearly reached max_bytes and does not fit anew.
  static Forest from_bytes(std::span<const char> bytes);

 private:
  friend class SnapshotReader;
  friend class Lockstep;
  static constexpr std::size_t kLanes = 64;  // trees that descend side by side

  struct Tree : Chunks {
    NodeId root = kNoNode;      // kNoNode: dropped
    std::uint32_t open = 0;     // rollouts in flight
    std::uint32_t reroots = 0;  // number of calls of reroot
    std::uint32_t base = 0;     // rollouts through the root's children when it became the root
    std::uint32_t stamp = 0;    // the last ask that listed the tree
    std::uint32_t reserved = 0;  // rollouts that a lockstep may ask; 0: the tree is in none
  };
  static constexpr std::int32_t kEveryLevel = INT32_MAX;
  using Counts = std::unordered_map<NodeId, std::uint32_t>;

  /// The tree of a node. The header of a root's block stores it.
  TreeId tree_of(NodeId node) const noexcept {
    NodeId block = block_of(node);
    while (header(block).parent != kNoNode) block = block_of(header(block).parent);
    return static_cast<TreeId>(header(block).here);
  }
  double mean_value(NodeId node) const noexcept {
    const Slot& s = slot(node);
    return s.visits_started == 0 ? 0.0 : s.value_sum / s.visits_started;
  }

  template <typename Rule, bool kSkips>
  void descend(const Batch& batch) noexcept;
  template <typename Rule, bool kSkips>
  void descend(const Batch& batch, std::size_t first, std::size_t last) noexcept;
  template <typename Choose>
  std::size_t go_down(const Lane* lanes, std::size_t count, Lane* inner, Lane* leaves, Choose&& choose) noexcept;
  template <typename Rule, bool kSkips, std::uint32_t kWidth>
  std::size_t go_down(const Lane* lanes, std::size_t count, Lane* inner, Lane* leaves) noexcept;
  template <typename Rule, bool kSkips>
  std::size_t go_down_parted(const Lane* lanes, std::size_t count, Lane* inner, Lane* leaves) noexcept;
  template <typename Rule, bool kSkips>
  std::size_t go_down(const Lane* lanes, std::size_t count, Lane* inner, Lane* leaves) noexcept;
  bool arrive(const Batch& batch, Lane lane, std::int32_t depth) noexcept;
  template <typename Rule, bool kSkips>
  NodeId select_child(const Slot& node) const noexcept;
  template <typename Rule, bool kSkips, std::uint32_t kWidth>
  NodeId select_child(const Slot& node) const noexcept;
  template <typename Rule, bool kSkips>
  NodeId best_child(NodeId block, std::uint32_t parent_visits) const noexcept;
  template <typename Rule, bool kSkips, std::uint32_t kPairs>
  NodeId best_of(NodeId block, std::uint32_t width, std::uint32_t parent_visits) const noexcept;
  template <typename Rule, bool kSkips>
  NodeId descend_one(NodeId node, std::int32_t& depth) noexcept;
  NodeId descend_tree(NodeId root) noexcept;
  template <typename Go>
  void by_rule(Go&& go) const;
  bool is_best_first() const noexcept { return config_.selection == Selection::kBestFirst; }
  bool is_thompson() const noexcept { return config_.selection >= Selection::kThompsonGaussian; }
  bool is_walked() const noexcept { return config_.selection >= Selection::kBestFirst; }
  Found walk_one(TreeId tree, bool busy) noexcept { return is_best_first() ? take_best(tree, busy) : walk(tree); }
  Found take_best(TreeId tree, bool busy) noexcept;
  struct Improved;
  Found walk(TreeId tree) noexcept;
  NodeId gumbel_child(TreeId tree, NodeId node) const noexcept;
  Draws root_draws(TreeId tree) const noexcept;
  double best_end(NodeId node) const;
  NodeId thompson_child(Draws& draws, NodeId node) const noexcept;
  void walk(const Batch& batch) noexcept;
  void find(const Batch& batch) noexcept;
  void check_asked(std::span<const TreeId> trees, std::size_t more);
  void make_room(TreeId tree, std::size_t width);
  void offer(TreeId tree, NodeId leaf) noexcept;
  void offer_all(TreeId tree);
  void free_again(std::uint32_t rollout) noexcept;
  void reserve_rollouts(std::size_t more);
  Ticket open_rollout(TreeId tree, NodeId node) noexcept;
  void close_rollout(std::uint32_t index) noexcept;
  /// The entry of a ticket. Throws if the ticket is invalid; the message names `call`.
  std::uint32_t rollout_of(Ticket ticket, const char* call) const {
    const std::uint32_t index = ticket::place(ticket);
    if (index >= rollouts_.size() || rollouts_[index].ticket != ticket || ticket == ticket::kNone) [[unlikely]]
      refuse(ticket, call);
    return index;
  }
  [[noreturn]] static void refuse(Ticket ticket, const char* call);
  /// The same for a ticket that is known to be in flight.
  const Rollout& rollout(Ticket ticket) const noexcept { return rollouts_[ticket::place(ticket)]; }
  /// Invalidates tickets. Throws, changing nothing, if one is invalid or listed twice.
  void take(std::span<const Ticket> tickets, const char* call);
  void put_back(std::span<const Ticket> tickets) noexcept;
  void leave(NodeId node) noexcept;
  void undo(NodeId node) noexcept;
  void check_returns(std::span<const double> returns) const;
  void back_up(std::uint32_t rollout, double value) noexcept;
  std::vector<NodeId> leaves_of(std::span<const Ticket> tickets);
  /// Makes a claimed block the children of a leaf. Does not set their values.
  void grow(NodeId leaf, NodeId block, std::uint32_t width, std::uint32_t least = 0) noexcept {
    Slot& here = slot(leaf);
    lay_block(block, leaf, here.link & link::kIndex, width, here.visits_started, least);
    here.link = block >> 1;
  }
  NodeId append(NodeId node, TreeId tree);
  void step_down(Rollout& rollout, NodeId child) noexcept;
  void mark_exhausted(NodeId node) noexcept;
  void reopen(NodeId node) noexcept;
  bool all_exhausted(NodeId block) const noexcept;
  /// Adds a return to the leaf, which is in the given block, and to its next `ancestors` ancestors.
  void add_return(NodeId leaf, NodeId block, double value, std::int32_t ancestors = kEveryLevel) noexcept {
    for (NodeId node = leaf;; --ancestors) {
      slot(node).value_sum += value;
      if (squares_) squares_->as<double>()[node] += value * value;
      const Header& above = header(block);
      node = above.parent;
      if (node == kNoNode || ancestors <= 0) break;
      block = node - 1 - above.index;
    }
  }
  /// Undoes the count of a rollout started at the node.
  void unstart(NodeId node) noexcept {
    for (; node != kNoNode; node = parent_of(node)) --slot(node).visits_started;
  }
  Counts in_flight() const;
  static std::uint32_t count_of(const Counts& counts, NodeId node) {
    const auto found = counts.find(node);
    return found == counts.end() ? 0 : found->second;
  }
  void check_node(NodeId node) const;
  Tree& live_tree(TreeId tree) { return const_cast<Tree&>(std::as_const(*this).live_tree(tree)); }
  const Tree& live_tree(TreeId tree) const {
    if (static_cast<std::size_t>(tree) >= trees_.size() || trees_[static_cast<std::size_t>(tree)].root == kNoNode)
      [[unlikely]] no_tree(tree);
    return trees_[static_cast<std::size_t>(tree)];
  }
  [[noreturn]] void no_tree(TreeId tree) const;

  ForestConfig config_;
  const CountTable* table_ = &CountTable::instance();
  std::size_t free_rollouts_ = 0;
  std::vector<Tree> trees_;
  std::vector<std::vector<Open>> open_;  // a heap per tree, for best-first search only
  std::vector<Rollout> rollouts_;
  TicketNumbers numbers_;
  std::uint32_t free_rollout_ = kNoNode, asks_ = 0;
  std::vector<std::uint32_t> quota_, found_;  // ask's
  std::vector<const Lockstep*> locksteps_;
};

}  // namespace agentq
