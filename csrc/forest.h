// Many search trees in one arena: their statistics, selection, backup, preference pairs and snapshots.
// Owns numbers; knows nothing of pages, texts, models, clocks or files.
//
//     ask ──► tickets, in flight ──► (the caller acts there) ──► expand ──► extend ──► ... ──► tell or cancel
//
// A node is a history; a node that is no root is also the action that led to it, at its parent. Everything lies in cells
// of 16 bytes: a node is a cell, and its children are one block, a header cell and a cell a child, best critic rank
// first; those that are added later (widen) lie in further blocks. The id of a node is the number of its cell, below
// 2^31; the other cells are no nodes.
//
// A rollout is pending at one node and in flight on the whole path from there to the root. Until it is told it counts as
// a visit worth 0 ("virtual loss" 0), so that parallel rollouts spread out; cancelling it restores every number exactly.
// A ticket names one rollout of one forest and is good once: what was told, cancelled or dropped with its tree is refused,
// and so is a ticket of another forest.
// A call that throws has changed nothing. What is random comes from the seed alone, except the tickets. One thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/arena.h"
#include "csrc/cells.h"
#include "csrc/crew.h"
#include "csrc/results.h"
#include "csrc/score.h"
#include "csrc/settings.h"

namespace agentq {

class Draws;

inline constexpr std::uint32_t kMaxRollouts = 0xFFFFFFFFu;        // of a tree
inline constexpr std::uint64_t kMaxPairs = std::uint64_t{1} << 26;  // of a call, 20 bytes each

class Forest {
 public:
  /// @throws std::invalid_argument if a setting is out of range; ByteLimit if `max_bytes` cannot be reserved.
  explicit Forest(const ForestConfig& config);
  Forest(Forest&&) noexcept = default;
  Forest& operator=(Forest&&) noexcept = default;

  /// Plants `count` trees, each a root alone; tree ids go on from the last and are never used again.
  /// @throws ByteLimit if `max_bytes` would be passed.
  std::vector<TreeId> add_trees(std::size_t count);

  /// Gives up trees: their nodes are no more, their tickets are refused, their memory is used again or given back.
  void drop(std::span<const TreeId> trees);

  /// Descends to up to `n` leaves of each tree and puts the path to each in flight. A tree may be listed once.
  /// A leaf that is already in flight ends that tree's batch (a collision); a terminal leaf is a leaf like any other.
  Leaves ask(std::span<const TreeId> trees, std::size_t n);
  /// The same with a number for each tree, which may be 0.
  Leaves ask(std::span<const TreeId> trees, std::span<const std::uint32_t> quotas);

  struct One {
    AskStatus status;
    Ticket ticket;
    NodeId node;
  };
  /// One leaf of one tree, in flight; none unless the status is ok.
  One ask_one(TreeId tree);

  /// Moves each rollout from the node where it is pending down to that node's child of the given rank.
  std::vector<NodeId> extend(std::span<const Ticket> tickets, std::span<const std::uint32_t> ranks);

  /// Gives the leaf of each ticket its children, in the order of their critic rank.
  /// @param critic_values, logps, priors  one entry a child, node after node, finite critic values and priors; empty: 0.
  /// @return  the first child of each; the others follow it. kNoNode where max_bytes leaves no room: it stays a leaf.
  std::vector<NodeId> expand(std::span<const Ticket> tickets, std::span<const std::uint32_t> widths,
                             std::span<const float> critic_values, std::span<const float> logps,
                             std::span<const float> priors);

  /// The same for one leaf, without values.
  NodeId expand_one(Ticket ticket, std::uint32_t width);

  /// Gives the node of each ticket, a leaf or not, one more child, its last, and moves the rollout there. A ticket may be
  /// listed once; a node that was exhausted is no longer, nor are those above it.
  /// @param critic_values, logps, priors  one entry a ticket, finite critic values and priors; empty: 0, priors 1 / width.
  /// @return  the new children. kNoNode where max_bytes leaves no room: the rollout stays where it is.
  std::vector<NodeId> widen(std::span<const Ticket> tickets, std::span<const float> critic_values,
                            std::span<const float> logps, std::span<const float> priors);

  /// Marks the leaf of each ticket as one in which the episode ended.
  void set_terminal(std::span<const Ticket> tickets);

  /// Ends rollouts: N += 1, W += return, in_flight -= 1 from their nodes to the root.
  void tell(std::span<const Ticket> tickets, std::span<const double> returns);

  void tell_one(Ticket ticket, double value);

  /// Ends rollouts as if they had never been asked.
  void cancel(std::span<const Ticket> tickets);

  /// Cancels rollouts and closes their leaves: these count as terminal and exhausted, so that no rollout goes there again.
  /// @throws std::invalid_argument if a ticket is not pending at a leaf, or nodes are never exhausted here.
  void abandon(std::span<const Ticket> tickets);

  /// Where the rollouts are pending.
  std::vector<NodeId> nodes_of(std::span<const Ticket> tickets, const char* call = "find") const;

  /// Cuts off what is below a node; its own numbers stay. Nothing may be in flight through it.
  void prune(NodeId node);

  /// Makes `node` the root of its tree; the rest is dropped, what is kept moves together. Nothing may be in flight.
  /// @return  old and new ids of every node kept, parents first.
  std::pair<std::vector<NodeId>, std::vector<NodeId>> reroot(TreeId tree, NodeId node);

  /// Lays tree `other` over `tree` and drops it: roots on each other, children where their state is the same (set_states),
  /// the rest beside each other. Counts add up; critic values, logps and priors are the first tree's where both have some.
  /// Nothing may be in flight in either.
  /// @return  old and new ids of every node of both, parents first.
  std::pair<std::vector<NodeId>, std::vector<NodeId>> merge(TreeId tree, TreeId other);

  /// Says which state each node is, by a key of the caller's (a hash); nodes of a tree with equal keys are one state.
  void set_states(std::span<const NodeId> nodes, std::span<const std::uint64_t> keys);

  /// The states of a tree in the order they came up. What was told of nodes that were cut off since stays with their state.
  std::span<const State> states(TreeId tree) const;

  /// Every pair of children whose blended values differ by `threshold` or more, and at all.
  ///
  ///     Q(h, a) = alpha * W(h, a) / N(h, a) + (1 - alpha) * critic_value(h, a)        (W / N = 0 where N = 0)
  ///
  /// Trees in order, parents before children; within a node the largest gap first, ties by lower chosen, then rejected.
  /// Source: Putta et al. 2024, arXiv:2408.07199, eq. 10 and algorithm 1.
  /// Time and memory follow the children and the pairs returned, not the pairs there are.
  /// @param trees  whose nodes to take; all when absent.
  /// @throws std::invalid_argument if there would be more than kMaxPairs.
  Pairs pairs(const PairQuery& query, std::optional<std::span<const TreeId>> trees = {}) const;

  TreeTable table(std::span<const TreeId> trees) const;
  std::vector<NodeId> path(NodeId node) const;                  // root .. node
  std::vector<NodeId> children(NodeId node) const;               // in order; none of a leaf
  /// The action of each tree's root that the search has come to: the child with the most rollouts, then the largest mean,
  /// then the lowest index; with Selection::kGumbel the largest g + log P + sigma(Q) of those with the most rollouts.
  /// kNoNode of a leaf.
  std::vector<NodeId> recommend(std::span<const TreeId> trees) const;
  NodeId root(TreeId tree) const;
  std::vector<TreeId> trees() const;  // those not dropped

  std::uint64_t num_nodes() const noexcept { return num_nodes_; }
  std::size_t num_trees() const noexcept { return num_trees_; }
  std::size_t num_in_flight() const noexcept { return rollouts_.size() - free_rollouts_; }
  std::uint64_t bytes_in_use() const noexcept { return used_cells_ * bytes_per_cell(); }
  const ForestConfig& config() const noexcept { return config_; }
  /// How many threads a call on many trees may use, the caller's among them: 1 to 1024. Changes nothing but time.
  void set_threads(std::uint32_t threads);

  /// The cells themselves, at an address that never changes while anyone holds the reserve.
  const std::shared_ptr<Reserve>& cells() const noexcept { return cell_memory_; }
  std::uint32_t num_cells() const noexcept { return top_; }

  /// Everything but what is in flight, which is saved as cancelled. Versioned, with a checksum; see Journal.
  std::string to_bytes() const;
  /// @throws std::invalid_argument if the bytes are no snapshot, are damaged, or come from another version.
  static Forest from_bytes(std::span<const char> bytes);

 private:
  friend class Journal;
  friend class SnapshotReader;
  friend class Validator;

  static constexpr std::uint32_t kFirstChunk = 5, kLargestChunk = 16;  // log2 of cells
  static constexpr std::size_t kLanes = 64;                            // trees that descend side by side
  static constexpr std::size_t kWorthThreads = 256;  // leaves, some 30 us of work, from which on waking threads pays

  struct Tree {
    NodeId root = kNoNode;  // kNoNode: dropped
    std::uint32_t bump = 0, end = 0;  // free cells of its last chunk
    std::uint32_t chunks = kNoNode;   // its chunks, a list through their first cells, the last first
    std::uint32_t next_size = kFirstChunk;
    std::uint32_t nodes = 0;
    std::uint32_t open = 0;   // rollouts in flight
    std::uint32_t reroots = 0;  // so many times another node became the root
    std::uint32_t base = 0;     // rollouts through the root's children when it became the root
    std::uint32_t stamp = 0;  // the ask that listed it last
  };
  struct Rollout {
    Ticket ticket = ticket::kNone;  // none: free
    NodeId node = kNoNode;          // free: the next free entry
    TreeId tree = 0;
  };
  /// A leaf that best-first search may take: the largest value first, then the lowest id.
  struct Open {
    float value;
    NodeId node;
    bool operator<(const Open& other) const noexcept {
      return value != other.value ? value < other.value : node > other.node;
    }
  };
  struct Lane {
    NodeId node;
    std::uint32_t row;
  };
  struct Found {
    AskStatus status;
    NodeId node;
    std::int32_t depth = 0;
  };
  /// What is asked for and what has been found: row r's leaves lie from from[r] on, found[r] of them.
  struct Batch {
    std::span<const TreeId> trees;
    std::span<const std::uint32_t> quotas;
    std::vector<std::size_t> from;
    std::vector<std::uint32_t> found;
    std::uint32_t most = 0;  // of the quotas
    Leaves leaves;
  };
  struct Rows {
    std::size_t first, last;
  };
  using Counts = std::unordered_map<NodeId, std::uint32_t>;
  struct States {
    std::vector<State> list;
    std::unordered_map<std::uint64_t, std::uint32_t> index;
    std::uint32_t find_or_add(std::uint64_t key, double nothing) {
      const auto [at, added] = index.try_emplace(key, static_cast<std::uint32_t>(list.size()));
      if (added) list.push_back({key, nothing, 0});
      return at->second;
    }
  };
  struct Moved {
    std::vector<NodeId> old_ids, new_ids;
  };

  Slot& slot(NodeId node) const noexcept { return cells_[node].slot; }
  Header& header(NodeId block) const noexcept { return cells_[block].header; }
  /// The block that a node lies in.
  NodeId block_of(NodeId node) const noexcept {
    const std::uint32_t word = slot(node).link;
    const std::uint32_t index = link::is_leaf(word) ? word & link::kIndex : header(link::block(word)).index;
    return node - 1 - index;
  }
  NodeId parent_of(NodeId node) const noexcept { return header(block_of(node)).parent; }
  /// The tree of a node: before a root, where no rollout ends, the header says so.
  TreeId tree_of(NodeId node) const noexcept {
    NodeId block = block_of(node);
    while (header(block).parent != kNoNode) block = block_of(header(block).parent);
    return static_cast<TreeId>(header(block).here);
  }
  bool is_node(NodeId node) const noexcept;
  /// All children of a node, in order, from its first block on.
  template <typename Act>
  void for_children(NodeId block, Act&& act) const {
    for (; block != 0; block = header(block).next)
      for (NodeId child = block + 1; child <= block + header(block).width; ++child) act(child);
  }
  std::uint32_t children_of(NodeId node) const noexcept;
  /// The child of that rank of an inner node that has so many.
  NodeId child_at(NodeId block, std::uint32_t rank) const noexcept;
  double mean_value(NodeId node) const noexcept {
    const Slot& s = slot(node);
    if (config_.backup == Backup::kMax) return s.value_sum == kNothing ? 0.0 : s.value_sum;
    return s.started == 0 ? 0.0 : s.value_sum / s.started;
  }

  template <typename Rule, bool kPlain, bool kSkips>
  void descend(Batch& batch, Rows rows) noexcept;
  void arrive(Batch& batch, Lane lane, std::int32_t depth) noexcept;
  template <typename Rule, bool kPlain, bool kSkips>
  NodeId select_child(const Slot& node, const State* states) const noexcept;
  template <typename Rule, bool kPlain, bool kSkips, bool kTabled>
  NodeId best_child(NodeId block, std::uint32_t node_visits, const State* states) const noexcept;
  template <typename Go>
  void by_rule(Go&& go) const;
  /// act(rows) on all of [0, rows), in one piece or, where there is work for them, in one for each thread.
  template <typename Act>
  void split(std::size_t rows, std::size_t work, Act&& act) {
    if (crew_ == nullptr || work < kWorthThreads) return act(Rows{0, rows});
    const std::size_t size = crew_->size();
    crew_->run([&](std::uint32_t k) noexcept { act(Rows{rows * k / size, rows * (k + 1) / size}); });
  }
  /// Before anything is changed: the threads that split() will use.
  void gather(std::size_t work) {
    if (crew_ != nullptr && work >= kWorthThreads) crew_->gather();
  }
  bool is_best_first() const noexcept { return config_.selection == Selection::kBestFirst; }
  bool is_thompson() const noexcept { return config_.selection >= Selection::kThompsonGaussian; }
  bool is_walked() const noexcept { return config_.selection >= Selection::kBestFirst; }
  Found walk_one(TreeId tree, bool busy) noexcept { return is_best_first() ? take_best(tree, busy) : walk(tree); }
  Found take_best(TreeId tree, bool busy) noexcept;
  struct Improved;
  Found walk(TreeId tree) noexcept;
  NodeId gumbel_child(TreeId tree, NodeId node, bool recommended) const noexcept;
  NodeId thompson_child(Draws& draws, NodeId node) const noexcept;
  void walk(Batch& batch, Rows rows) noexcept;
  void make_room(TreeId tree, std::size_t width);
  void offer(TreeId tree, NodeId leaf) noexcept;
  void offer_all(TreeId tree);
  void free_again(std::uint32_t rollout) noexcept;
  void reserve_rollouts(std::size_t more);
  Ticket open_rollout(TreeId tree, NodeId node) noexcept;
  void close_rollout(std::uint32_t index) noexcept;
  /// The entry of a ticket, or throws: "call" is what was tried.
  std::uint32_t rollout_of(Ticket ticket, const char* call) const {
    const std::uint32_t index = ticket::place(ticket);
    if (index >= rollouts_.size() || rollouts_[index].ticket != ticket || ticket == ticket::kNone) [[unlikely]]
      refuse(ticket, call);
    return index;
  }
  [[noreturn]] static void refuse(Ticket ticket, const char* call);
  /// The same of a ticket that is known to be in flight.
  const Rollout& rollout(Ticket ticket) const noexcept { return rollouts_[ticket::place(ticket)]; }
  /// Makes tickets invalid, none of them twice; or throws and leaves all as they are.
  void take(std::span<const Ticket> tickets, const char* call);
  void put_back(std::span<const Ticket> tickets) noexcept;
  void leave(NodeId node) noexcept;
  /// Whether anything beside W and N is kept of a node.
  bool keeps_more() const noexcept { return squares_ || successes_ || state_; }
  void check_returns(std::span<const double> returns) const;
  void back_up(std::uint32_t rollout, double value) noexcept;
  void keep(TreeId tree, NodeId node, double value, bool success) noexcept;
  std::vector<NodeId> leaves_of(std::span<const Ticket> tickets);
  void grow(NodeId leaf, NodeId block, std::uint32_t width) noexcept;
  NodeId append(NodeId node, TreeId tree);
  void step_down(Rollout& rollout, NodeId child) noexcept;
  void mark_exhausted(NodeId node) noexcept;
  void reopen(NodeId node) noexcept;
  bool all_exhausted(NodeId block) const noexcept;

  double nothing() const noexcept { return config_.backup == Backup::kMax ? kNothing : 0.0; }
  /// W of two parts of what was told: sums, returns, or one of each.
  static double joined(Backup backup, double w, double more) noexcept {
    return backup == Backup::kMax ? std::max(w, more) : w + more;
  }
  std::uint32_t state_of(NodeId node) const noexcept { return state_ ? state_->as<std::uint32_t>()[node] : 0; }
  States& states_of(TreeId tree) noexcept { return states_[static_cast<std::size_t>(tree)]; }
  /// The state of a node of that tree; null if it has none.
  const State* state_at(TreeId tree, NodeId node) const noexcept {
    const std::uint32_t state = state_of(node);
    return state == 0 ? nullptr : &states_[static_cast<std::size_t>(tree)].list[state - 1];
  }
  State* state_at(TreeId tree, NodeId node) noexcept {
    return const_cast<State*>(std::as_const(*this).state_at(tree, node));
  }
  /// What selection looks a child's state up in; null where it does not.
  const State* shared_states(TreeId tree) const noexcept {
    return config_.transpositions && state_ ? states_[static_cast<std::size_t>(tree)].list.data() : nullptr;
  }
  void make_states();
  std::optional<std::uint64_t> key_of(TreeId tree, NodeId node) const noexcept;
  void count_states(TreeId tree, NodeId node, std::uint32_t more) noexcept;
  NodeId lay_over(Tree& fresh, TreeId tree, NodeId a, TreeId other, NodeId b, Moved& moved);
  void add_up(TreeId tree, NodeId now, NodeId a, TreeId other, NodeId b);
  std::pair<std::vector<NodeId>, std::vector<NodeId>> replace(TreeId tree, NodeId a, TreeId other, NodeId b);

  std::uint64_t bytes_per_cell() const noexcept {
    return sizeof(Cell) + 4u * (bool{critic_} + bool{logp_} + bool{prior_} + bool{successes_} + bool{state_}) +
           8u * bool{squares_};
  }
  bool add_chunk(Tree& tree, std::uint32_t need);
  std::uint32_t allocate_chunk(std::uint32_t log2);
  void free_chunks(Tree& tree) noexcept;
  NodeId claim(Tree& tree, std::uint32_t room, std::uint32_t width);
  void lay_block(NodeId block, NodeId parent, std::uint32_t index, std::uint32_t width, std::uint32_t here) noexcept;
  void lay_slot(NodeId node, std::uint32_t index) noexcept;
  void clear_beside(NodeId first, std::uint32_t width) noexcept;
  void materialise(std::shared_ptr<Reserve>& column);
  void make_columns(std::span<const float> critic_values, std::span<const float> logps, std::span<const float> priors);
  static float at(const std::shared_ptr<Reserve>& column, NodeId node) noexcept {
    return column ? column->as<float>()[node] : 0.0f;
  }

  /// Takes back that a rollout was started at the node.
  void unstart(NodeId node) noexcept {
    for (; node != kNoNode; node = parent_of(node)) --slot(node).started;
  }

  /// What lies beside the cells, in the order of a snapshot, and a bit for each that is there.
  struct Column {
    std::shared_ptr<Reserve> memory;
    std::size_t size;  // bytes a cell
  };
  std::vector<Column> columns() const;
  std::uint32_t columns_there() const;

  Counts in_flight() const;
  Counts waiting() const;  // at the very node
  static std::uint32_t count_of(const Counts& counts, NodeId node) {
    const auto found = counts.find(node);
    return found == counts.end() ? 0 : found->second;
  }
  std::vector<NodeId> below(NodeId node) const;  // the node and all below it, parents first, siblings together

  void check_node(NodeId node) const;
  Tree& live_tree(TreeId tree) { return const_cast<Tree&>(std::as_const(*this).live_tree(tree)); }
  const Tree& live_tree(TreeId tree) const {
    if (static_cast<std::size_t>(tree) >= trees_.size() || trees_[static_cast<std::size_t>(tree)].root == kNoNode)
      [[unlikely]] no_tree(tree);
    return trees_[static_cast<std::size_t>(tree)];
  }
  [[noreturn]] void no_tree(TreeId tree) const;

  ForestConfig config_;
  std::unique_ptr<Crew> crew_;  // none with one thread
  const CountTable* table_ = &CountTable::instance();
  std::shared_ptr<Reserve> cell_memory_, head_memory_;  // one bit for two cells: a block starts there
  std::shared_ptr<Reserve> critic_, logp_, prior_;      // float a cell; absent until one is given
  std::shared_ptr<Reserve> squares_;                    // double a cell; absent unless config.squares
  std::shared_ptr<Reserve> successes_;                  // u32 a cell; absent unless config.success_at
  std::shared_ptr<Reserve> state_;                      // u32 a cell: 1 + its place in states_, 0: none; absent until set
  Cell* cells_ = nullptr;
  std::uint64_t* heads_ = nullptr;
  std::uint32_t top_ = 0;  // cells ever handed out
  std::uint64_t used_cells_ = 0, num_nodes_ = 0;
  std::size_t num_trees_ = 0, free_rollouts_ = 0;
  std::uint32_t free_chunk_[32];  // lists of free chunks by log2 of their cells
  std::vector<Tree> trees_;
  std::vector<States> states_;           // a tree; empty until a state is set
  std::vector<std::vector<Open>> open_;  // a heap a tree; best-first search alone has them
  std::vector<Rollout> rollouts_;
  std::uint32_t free_rollout_ = kNoNode;
  TicketNumbers numbers_;
  std::uint32_t asks_ = 0;
  std::vector<std::uint32_t> quotas_;
  Batch batch_;
};

}  // namespace agentq
