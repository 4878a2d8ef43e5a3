// Many search trees in one arena: their statistics, selection, backup, preference pairs and snapshots.
// Owns numbers; knows nothing of pages, texts, models, clocks or files.
//
//     ask ──► tickets, in flight ──► (the caller acts there) ──► expand ──► extend ──► ... ──► tell or cancel
//
// A node is a history; a node that is no root is also the action that led to it, at its parent. Everything lies in cells
// of 16 bytes: a node is a cell, and its children are one block, a header cell and a cell a child, best critic rank
// first. The id of a node is the number of its cell, below 2^31; the other cells are no nodes.
//
//     cell   64  65 66 67   68  69 70
//            H   a  b  c    H   d  e        d, e are the children of b: link(b) = 68, header(68).parent = 66
//
// A rollout is pending at one node and in flight on the whole path from there to the root. Until it is told it counts as
// a visit worth 0 ("virtual loss" 0), so that parallel rollouts spread out; cancelling it restores every number exactly.
// A ticket names one rollout and is good once: what was told, cancelled or dropped with its tree is refused.
// A call that throws has changed nothing. There is no randomness. One thread at a time.
#pragma once

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
#include "csrc/score.h"

namespace agentq {

using NodeId = std::uint32_t;
using TreeId = std::int32_t;
using Ticket = std::uint64_t;

inline constexpr NodeId kNoNode = 0xFFFFFFFFu;  // the parent of a root, the first child of a leaf
inline constexpr std::uint32_t kMaxWidth = 0xFFFFu;
inline constexpr std::uint64_t kMaxCells = std::uint64_t{1} << 31;
inline constexpr std::uint32_t kMaxRollouts = 0xFFFFFFFFu;                    // of a tree
inline constexpr double kNothing = -std::numeric_limits<double>::infinity();  // the largest of no returns

enum class Selection : std::uint8_t { kUcb1 = 0, kUct = 1, kPuct = 2, kBestFirst = 3 };
enum class Unvisited : std::uint8_t {
  kFormula = 0,  // an edge without visits is scored like any other (Agent Q's 1 + N)
  kFirst = 1,    // an edge without visits goes first, lowest index first
};
enum class Backup : std::uint8_t {
  kMean = 0,  // Q = W / N: the mean return below an edge
  kMax = 1,   // Q = the largest return below an edge
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
  Unvisited unvisited = Unvisited::kFormula;  // kUct: kFirst whatever is said here
  bool exhaust = true;                        // selection passes over exhausted nodes
  Backup backup = Backup::kMean;
  double discount = 1.0;  // in (0, 1]: a return counts discount^d, d edges above the node that it was told at
  double alpha = 1.0;     // in [0, 1]: selection sees alpha * Q + (1 - alpha) * critic_value
  bool squares = false;   // keep the sum of squared returns of every node, 8 bytes more
  std::uint64_t max_bytes = std::uint64_t{8} << 30;  // of cells and what lies beside them
};

/// What ends a snapshot: FNV-1a over words of eight bytes, the last filled up with zeros.
std::uint64_t snapshot_checksum(std::span<const char> bytes);

/// One node. W is the sum of the returns told through it (their maximum with Backup::kMax), N counts every rollout
/// started through it, those in flight included, so that cancelling one leaves no rounding behind.
struct Slot {
  double value_sum;
  std::uint32_t started;
  std::uint32_t link;  // see the namespace link
};

/// What stands before the children of a node.
struct Header {
  NodeId parent;        // kNoNode before a root
  std::uint32_t here;   // rollouts that ended or wait at the parent itself: N(h) = started(parent) - here
  std::uint32_t unused;
  std::uint16_t width;
  std::uint16_t index;  // of the parent among its siblings: its own header lies index + 1 cells before it
};

union Cell {
  Slot slot;
  Header header;
};
static_assert(sizeof(Cell) == 16);

/// The last word of a slot. Inner node: the cell of its block / 2. Leaf: flags, rollouts pending at it, its own index.
namespace link {
inline constexpr std::uint32_t kLeaf = 1u << 31, kExhausted = 1u << 30, kTerminal = 1u << 29;
inline constexpr std::uint32_t kPendingOne = 1u << 16, kPending = 0x1FFFu << 16, kIndex = 0xFFFFu;
inline constexpr bool is_leaf(std::uint32_t word) noexcept { return (word & kLeaf) != 0; }
inline constexpr bool is_exhausted(std::uint32_t word) noexcept { return (word & kExhausted) != 0; }
/// A leaf that may be asked: none waits at it, and there is something left to learn.
inline constexpr bool is_open(std::uint32_t word) noexcept {
  return is_leaf(word) && (word & (kPending | kExhausted)) == 0;
}
inline constexpr NodeId block(std::uint32_t word) noexcept { return (word & ~(kLeaf | kExhausted)) << 1; }
}  // namespace link

/// Rollouts newly in flight, those of one tree together; `status` has one entry per tree asked.
struct Leaves {
  std::vector<Ticket> ticket;
  std::vector<NodeId> node;
  std::vector<TreeId> tree;
  std::vector<std::int32_t> depth;
  std::vector<std::uint8_t> status;  // AskStatus
};

/// Trees one after the other; in each parents before children, the children of a node together and in order.
struct TreeTable {
  std::vector<NodeId> id;
  std::vector<TreeId> tree;
  std::vector<std::int32_t> parent;  // rows of this table; -1 for a root
  std::vector<std::int32_t> depth;
  std::vector<std::uint32_t> visit_count;  // told
  std::vector<std::uint32_t> in_flight;
  std::vector<double> value_sum, square_sum;  // square_sum: empty unless the forest keeps squares
  std::vector<float> critic_value, logp, prior;
  std::vector<std::uint8_t> flags;  // Flag
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

  /// Marks the leaf of each ticket as one in which the episode ended.
  void set_terminal(std::span<const Ticket> tickets);

  /// Ends rollouts: N += 1, W += return, in_flight -= 1 from their nodes to the root.
  void tell(std::span<const Ticket> tickets, std::span<const double> returns);

  void tell_one(Ticket ticket, double value);

  /// Ends rollouts as if they had never been asked.
  void cancel(std::span<const Ticket> tickets);

  /// Where the rollouts are pending.
  std::vector<NodeId> nodes_of(std::span<const Ticket> tickets, const char* call = "find") const;

  /// Cuts off what is below a node; its own numbers stay. Nothing may be in flight through it.
  void prune(NodeId node);

  /// Makes `node` the root of its tree; the rest is dropped, what is kept moves together. Nothing may be in flight.
  /// @return  old and new ids of every node kept, parents first.
  std::pair<std::vector<NodeId>, std::vector<NodeId>> reroot(TreeId tree, NodeId node);

  /// Every pair of children whose blended values differ by `threshold` or more, and at all.
  ///
  ///     Q(h, a) = alpha * W(h, a) / N(h, a) + (1 - alpha) * critic_value(h, a)        (W / N = 0 where N = 0)
  ///
  /// Trees in order, parents before children; within a node the largest gap first, ties by lower chosen, then rejected.
  /// Source: Putta et al. 2024, arXiv:2408.07199, eq. 10 and algorithm 1.
  /// @param trees  whose nodes to take; all when absent.
  Pairs pairs(const PairQuery& query, std::optional<std::span<const TreeId>> trees = {}) const;

  TreeTable table(std::span<const TreeId> trees) const;
  std::vector<NodeId> path(NodeId node) const;                  // root .. node
  std::pair<NodeId, std::uint32_t> children(NodeId node) const;  // first and number; kNoNode and 0 of a leaf
  NodeId root(TreeId tree) const;
  std::vector<TreeId> trees() const;  // those not dropped

  std::uint64_t num_nodes() const noexcept { return num_nodes_; }
  std::size_t num_trees() const noexcept { return num_trees_; }
  std::size_t num_in_flight() const noexcept { return rollouts_.size() - free_rollouts_; }
  std::uint64_t bytes_in_use() const noexcept { return used_cells_ * bytes_per_cell(); }
  const ForestConfig& config() const noexcept { return config_; }

  /// The cells themselves, at an address that never changes while anyone holds the reserve.
  const std::shared_ptr<Reserve>& cells() const noexcept { return cell_memory_; }
  std::uint32_t num_cells() const noexcept { return top_; }

  /// Everything but what is in flight, which is saved as cancelled. Versioned, with a checksum.
  std::string to_bytes() const;
  /// @throws std::invalid_argument if the bytes are no snapshot, are damaged, or come from a newer version.
  static Forest from_bytes(std::span<const char> bytes);

 private:
  friend class SnapshotReader;

  static constexpr std::uint32_t kFirstChunk = 5, kLargestChunk = 16;  // log2 of cells
  static constexpr std::size_t kLanes = 16;                            // trees that descend side by side

  struct Tree {
    NodeId root = kNoNode;  // kNoNode: dropped
    std::uint32_t bump = 0, end = 0;  // free cells of its last chunk
    std::uint32_t chunks = kNoNode;   // its chunks, a list through their first cells, the last first
    std::uint32_t next_size = kFirstChunk;
    std::uint32_t nodes = 0;
    std::uint32_t open = 0;   // rollouts in flight
    std::uint32_t stamp = 0;  // the ask that listed it last
  };
  struct Rollout {
    NodeId node;  // free: the next free entry
    TreeId tree;
    std::uint32_t generation;  // even: free
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
    std::uint32_t depth, row;
  };
  using Counts = std::unordered_map<NodeId, std::uint32_t>;

  Slot& slot(NodeId node) const noexcept { return cells_[node].slot; }
  Header& header(NodeId block) const noexcept { return cells_[block].header; }
  /// The block that a node lies in.
  NodeId block_of(NodeId node) const noexcept {
    const std::uint32_t word = slot(node).link;
    const std::uint32_t index = link::is_leaf(word) ? word & link::kIndex : header(link::block(word)).index;
    return node - 1 - index;
  }
  NodeId parent_of(NodeId node) const noexcept { return header(block_of(node)).parent; }
  bool is_node(NodeId node) const noexcept;
  std::uint32_t children_of(NodeId node) const noexcept {
    const std::uint32_t word = slot(node).link;
    return link::is_leaf(word) ? 0 : header(link::block(word)).width;
  }

  template <typename Rule, bool kPlain>
  void descend(std::span<const TreeId> trees, std::size_t n, Leaves& leaves, std::uint32_t* found) noexcept;
  template <typename Rule, bool kPlain>
  NodeId select_child(NodeId block, std::uint32_t node_visits) const noexcept;
  template <typename Go>
  void by_rule(Go&& go) const;
  bool is_best_first() const noexcept { return config_.selection == Selection::kBestFirst; }
  One take_best(TreeId tree) noexcept;
  void take_best(std::span<const TreeId> trees, std::size_t n, Leaves& leaves, std::uint32_t* found) noexcept;
  void make_room(TreeId tree, std::size_t width);
  void offer(TreeId tree, NodeId leaf) noexcept;
  void offer_all(TreeId tree);
  void free_again(std::uint32_t rollout) noexcept;
  Ticket open_rollout(TreeId tree, NodeId node) noexcept;
  void close_rollout(std::uint32_t index) noexcept;
  /// The entry of a ticket, or throws: "call" is what was tried.
  std::uint32_t rollout_of(Ticket ticket, const char* call) const;
  /// The entries of tickets, none twice, each marked as taken; or throws and marks none.
  void take(std::span<const Ticket> tickets, const char* call);
  void leave(NodeId node) noexcept;
  void back_up(std::uint32_t rollout, double value) noexcept;
  std::vector<NodeId> leaves_of(std::span<const Ticket> tickets);
  NodeId grow(NodeId leaf, TreeId tree, std::uint32_t width);
  void mark_exhausted(NodeId node) noexcept;
  bool all_exhausted(NodeId block) const noexcept;

  std::uint64_t bytes_per_cell() const noexcept { return sizeof(Cell) + 4u * (bool{critic_} + bool{logp_} + bool{prior_}) + 8u * bool{squares_}; }
  /// A free block for `width` children; kNoNode at the byte limit.
  NodeId allocate(Tree& tree, std::uint32_t width);
  std::uint32_t allocate_chunk(std::uint32_t log2);
  void free_chunks(Tree& tree) noexcept;
  void lay_block(NodeId block, NodeId parent, std::uint32_t index, std::uint32_t width, std::uint32_t here) noexcept;
  void materialise(std::shared_ptr<Reserve>& column);
  void make_columns(std::span<const float> critic_values, std::span<const float> logps, std::span<const float> priors);
  static float at(const std::shared_ptr<Reserve>& column, NodeId node) noexcept {
    return column ? column->as<float>()[node] : 0.0f;
  }

  /// Takes back that a rollout was started at the node.
  void unstart(NodeId node) noexcept {
    for (; node != kNoNode; node = parent_of(node)) --slot(node).started;
  }

  Counts in_flight() const;
  static std::uint32_t count_of(const Counts& counts, NodeId node) {
    const auto found = counts.find(node);
    return found == counts.end() ? 0 : found->second;
  }
  std::vector<NodeId> below(NodeId node) const;  // the node and all below it, parents first, siblings together

  void check_node(NodeId node) const;
  Tree& live_tree(TreeId tree);
  const Tree& live_tree(TreeId tree) const;

  ForestConfig config_;
  const CountTable* table_ = &CountTable::instance();
  std::shared_ptr<Reserve> cell_memory_, head_memory_;  // one bit for two cells: a block starts there
  std::shared_ptr<Reserve> critic_, logp_, prior_;      // float a cell; absent until one is given
  std::shared_ptr<Reserve> squares_;                    // double a cell; absent unless config.squares
  Cell* cells_ = nullptr;
  std::uint64_t* heads_ = nullptr;
  std::uint32_t top_ = 0;  // cells ever handed out
  std::uint64_t used_cells_ = 0, num_nodes_ = 0;
  std::size_t num_trees_ = 0, free_rollouts_ = 0;
  std::uint32_t free_chunk_[32];  // lists of free chunks by log2 of their cells
  std::vector<Tree> trees_;
  std::vector<std::vector<Open>> open_;  // a heap a tree; best-first search alone has them
  std::vector<Rollout> rollouts_;
  std::uint32_t free_rollout_ = kNoNode;
  std::uint32_t asks_ = 0;
};

}  // namespace agentq
