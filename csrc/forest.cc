#include "csrc/forest.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <type_traits>

namespace agentq {
namespace {

constexpr std::uint64_t kMaxCells = std::uint64_t{1} << 31;
constexpr std::size_t kMaxTrees = std::numeric_limits<TreeId>::max();
constexpr std::uint32_t kMaxRollouts = std::numeric_limits<std::uint32_t>::max();
constexpr double kNothing = -std::numeric_limits<double>::infinity();  // the largest of no returns
constexpr std::uint32_t kGiveBack = 12;  // chunks of 2^12 cells (64 KiB) and more go back to the system

std::string describe(NodeId node) { return "node " + std::to_string(node); }

void check_length(const char* name, std::size_t got, const char* per, std::size_t want) {
  if (got != want)
    throw std::invalid_argument(std::string(name) + " must have one entry per " + per + " (" + std::to_string(want) +
                                "); got " + std::to_string(got));
}

template <typename T>
void check_finite(const char* name, std::span<const T> values) {
  for (const T value : values)
    if (!std::isfinite(value))
      throw std::invalid_argument(std::string(name) + " must be finite; got " + std::to_string(value));
}

constexpr std::uint32_t cells_of(std::uint32_t width) { return (width + 2) & ~1u; }  // blocks start at even cells

void prefetch(const void* address) noexcept { __builtin_prefetch(address); }

}  // namespace

Forest::Forest(const ForestConfig& config) : config_(config) {
  if (!std::isfinite(config.c_exp) || config.c_exp < 0)
    throw std::invalid_argument("c_exp must be finite and at least 0; got " + std::to_string(config.c_exp));
  if (!(config.discount > 0 && config.discount <= 1))
    throw std::invalid_argument("discount must be in (0, 1]; got " + std::to_string(config.discount));
  if (!(config.alpha >= 0 && config.alpha <= 1))
    throw std::invalid_argument("alpha must be in [0, 1]; got " + std::to_string(config.alpha));
  if (config.max_bytes < 4096 || config.max_bytes > kMaxCells * sizeof(Cell))
    throw std::invalid_argument("max_bytes must be in [4096, " + std::to_string(kMaxCells * sizeof(Cell)) + "]; got " +
                                std::to_string(config.max_bytes));
  if (config.selection == Selection::kUct) config_.unvisited = Unvisited::kFirst;
  const std::uint64_t most_cells = config.max_bytes / sizeof(Cell);
  cell_memory_ = Reserve::make(most_cells * sizeof(Cell));
  head_memory_ = Reserve::make(most_cells / 16 + 64);
  head_memory_->give_back(0, head_memory_->size());  // to zeros
  cells_ = cell_memory_->as<Cell>();
  heads_ = head_memory_->as<std::uint64_t>();
  std::fill(std::begin(free_chunk_), std::end(free_chunk_), kNoNode);
  if (config.selection == Selection::kPuct) materialise(prior_);
  if (config.squares) squares_ = Reserve::make(most_cells * sizeof(double));
}

// Memory ---------------------------------------------------------------------------------------------------------------

void Forest::materialise(std::shared_ptr<Reserve>& column) {
  if (column) return;
  if (used_cells_ * (bytes_per_cell() + sizeof(float)) > config_.max_bytes)
    throw ByteLimit("critic values, log-probabilities or priors must fit max_bytes (" +
                    std::to_string(config_.max_bytes) + "); they would pass it");
  column = Reserve::make(config_.max_bytes / sizeof(Cell) * sizeof(float));
  std::fill_n(column->as<float>(), top_, 0.0f);
}

std::uint32_t Forest::allocate_chunk(std::uint32_t log2) {
  const std::uint64_t cells = std::uint64_t{1} << log2;
  if ((used_cells_ + cells) * bytes_per_cell() > config_.max_bytes) return kNoNode;
  std::uint32_t from = log2;
  while (from < 32 && free_chunk_[from] == kNoNode) ++from;
  std::uint32_t chunk = top_;
  if (from < 32) {
    chunk = free_chunk_[from];
    free_chunk_[from] = header(chunk).parent;
    for (; from > log2; --from) {  // the upper half becomes free
      const std::uint32_t half = chunk + (1u << (from - 1));
      header(half) = {free_chunk_[from - 1], from - 1, 0, 0, 0};
      free_chunk_[from - 1] = half;
    }
  } else {
    if (top_ + cells > config_.max_bytes / sizeof(Cell)) return kNoNode;
    top_ += static_cast<std::uint32_t>(cells);
  }
  used_cells_ += cells;
  header(chunk) = {kNoNode, log2, 0, 0, 0};
  return chunk;
}

NodeId Forest::allocate(Tree& tree, std::uint32_t width) {
  const std::uint32_t need = cells_of(width);
  if (tree.end - tree.bump < need) {
    // two cells for the chunk's own list
    const std::uint32_t least = std::max(kFirstChunk, static_cast<std::uint32_t>(std::bit_width(need + 1)));
    std::uint32_t log2 = std::max(tree.next_size, least);
    std::uint32_t chunk = allocate_chunk(log2);
    while (chunk == kNoNode && log2 > least) chunk = allocate_chunk(--log2);
    if (chunk == kNoNode) return kNoNode;
    header(chunk).parent = tree.chunks;
    tree.chunks = chunk;
    tree.bump = chunk + 2;
    tree.end = chunk + (1u << log2);
    tree.next_size = std::min(std::max(tree.next_size, log2) + 1, kLargestChunk);
  }
  const NodeId block = tree.bump;
  tree.bump += need;
  return block;
}

void Forest::free_chunks(Tree& tree) noexcept {
  for (std::uint32_t chunk = tree.chunks; chunk != kNoNode;) {
    const auto [next, log2] = std::pair(header(chunk).parent, header(chunk).here);
    const std::size_t cells = std::size_t{1} << log2;
    std::fill_n(head_memory_->as<std::uint16_t>() + chunk / 32, cells / 32, std::uint16_t{0});
    if (log2 >= kGiveBack) {
      cell_memory_->give_back(chunk * sizeof(Cell), cells * sizeof(Cell));
      for (const auto& column : {critic_, logp_, prior_})
        if (column) column->give_back(chunk * sizeof(float), cells * sizeof(float));
      if (squares_) squares_->give_back(chunk * sizeof(double), cells * sizeof(double));
    }
    header(chunk) = {free_chunk_[log2], log2, 0, 0, 0};
    free_chunk_[log2] = chunk;
    used_cells_ -= cells;
    chunk = next;
  }
  tree.chunks = kNoNode;
  tree.bump = tree.end = 0;
}

void Forest::lay_block(NodeId block, NodeId parent, std::uint32_t index, std::uint32_t width,
                       std::uint32_t here) noexcept {
  header(block) = {parent, here, 0, static_cast<std::uint16_t>(width), static_cast<std::uint16_t>(index)};
  const double nothing = config_.backup == Backup::kMax ? kNothing : 0.0;
  for (std::uint32_t i = 0; i < width; ++i) slot(block + 1 + i) = {nothing, 0, link::kLeaf | i};
  if (squares_) std::fill_n(squares_->as<double>() + block + 1, width, 0.0);
  heads_[block >> 7] |= std::uint64_t{1} << (block >> 1 & 63);
  num_nodes_ += width;
}

bool Forest::is_node(NodeId node) const noexcept {
  if (node >= top_) return false;
  std::size_t word = node >> 7;
  std::uint64_t bits = heads_[word] << (63 - (node >> 1 & 63)) >> (63 - (node >> 1 & 63));
  for (std::size_t scanned = 0; bits == 0; bits = heads_[--word])
    if (word == 0 || ++scanned > kMaxWidth / 128 + 1) return false;
  const auto block = static_cast<NodeId>((word << 6 | (63 - static_cast<unsigned>(std::countl_zero(bits)))) << 1);
  return node > block && node - block <= header(block).width;
}

NodeId Forest::block_of(NodeId node) const noexcept {
  const std::uint32_t word = slot(node).link;
  const std::uint32_t index = link::is_leaf(word) ? word & link::kIndex : header(link::block(word)).index;
  return node - 1 - index;
}

// Trees ----------------------------------------------------------------------------------------------------------------

void Forest::check_node(NodeId node) const {
  if (!is_node(node)) throw std::out_of_range("no node " + std::to_string(node));
}

const Forest::Tree& Forest::live_tree(TreeId tree) const {
  if (tree < 0 || static_cast<std::size_t>(tree) >= trees_.size())
    throw std::out_of_range("no tree " + std::to_string(tree) + "; there are " + std::to_string(trees_.size()));
  const Tree& found = trees_[static_cast<std::size_t>(tree)];
  if (found.root == kNoNode) throw std::out_of_range("tree " + std::to_string(tree) + " has been dropped");
  return found;
}

Forest::Tree& Forest::live_tree(TreeId tree) { return const_cast<Tree&>(std::as_const(*this).live_tree(tree)); }

std::vector<TreeId> Forest::add_trees(std::size_t count) {
  if (count > kMaxTrees - trees_.size())
    throw std::invalid_argument("a forest must have at most " + std::to_string(kMaxTrees) + " trees; got " +
                                std::to_string(trees_.size()) + " and " + std::to_string(count) + " more");
  std::vector<TreeId> ids(count);
  const std::size_t before = trees_.size();
  if (is_best_first()) {
    open_.resize(before + count);
    for (std::size_t i = 0; i < count; ++i) open_[before + i].reserve(2);
  }
  trees_.resize(before + count);
  for (std::size_t i = 0; i < count; ++i) {
    Tree& tree = trees_[before + i];
    const NodeId block = allocate(tree, 1);
    if (block == kNoNode) {
      for (std::size_t j = 0; j < i; ++j) free_chunks(trees_[before + j]);
      num_nodes_ -= i;
      trees_.resize(before);
      if (is_best_first()) open_.resize(before);
      throw ByteLimit("the trees of a forest must fit max_bytes (" + std::to_string(config_.max_bytes) + "); got " +
                      std::to_string(count) + " more trees");
    }
    lay_block(block, kNoNode, 0, 1, 0);
    if (critic_) critic_->as<float>()[block + 1] = 0.0f;
    if (logp_) logp_->as<float>()[block + 1] = 0.0f;
    if (prior_) prior_->as<float>()[block + 1] = 1.0f;
    tree.nodes = 1;
    tree.root = block + 1;
    if (is_best_first()) open_[before + i].push_back({0.0f, tree.root});
    ids[i] = static_cast<TreeId>(before + i);
  }
  num_trees_ += count;
  return ids;
}

void Forest::drop(std::span<const TreeId> trees) {
  for (const TreeId tree : trees) live_tree(tree);
  std::size_t open = 0;
  for (const TreeId id : trees) {
    Tree& tree = trees_[static_cast<std::size_t>(id)];
    if (tree.root == kNoNode) continue;  // listed twice
    open += tree.open;
    free_chunks(tree);
    num_nodes_ -= tree.nodes;
    --num_trees_;
    tree = Tree{};
    if (is_best_first()) open_[static_cast<std::size_t>(id)] = {};
  }
  for (std::uint32_t i = 0; open > 0 && i < rollouts_.size(); ++i)
    if ((rollouts_[i].generation & 1) != 0 && trees_[static_cast<std::size_t>(rollouts_[i].tree)].root == kNoNode) {
      ++rollouts_[i].generation;
      close_rollout(i);
      --open;
    }
}

NodeId Forest::root(TreeId tree) const { return live_tree(tree).root; }

std::vector<TreeId> Forest::trees() const {
  std::vector<TreeId> live;
  for (std::size_t i = 0; i < trees_.size(); ++i)
    if (trees_[i].root != kNoNode) live.push_back(static_cast<TreeId>(i));
  return live;
}

// Selection ------------------------------------------------------------------------------------------------------------

/// Calls `go` with the selection rule and whether Q is the plain mean: what the descent is compiled for.
template <typename Go>
void Forest::by_rule(Go&& go) const {
  const bool plain = config_.backup == Backup::kMean && config_.alpha == 1.0;
  const auto with = [&](auto rule) { plain ? go(rule, std::true_type{}) : go(rule, std::false_type{}); };
  switch (config_.selection) {
    case Selection::kUcb1: return with(Ucb1{});
    case Selection::kUct: return with(Uct{});
    case Selection::kPuct: return with(Puct{});
    case Selection::kBestFirst: return;  // has no rule of a node
  }
}

/// The child that selection takes: the largest score; ties by fewer rollouts started, then by lower index.
/// Exhausted children are passed over (no flag is ever set unless config.exhaust); one child at least is not.
template <typename Rule, bool kPlain>
NodeId Forest::select_child(NodeId block, std::uint32_t node_visits) const noexcept {
  const CountTable& table = *table_;
  const double scale = Rule::scale(table, config_.c_exp, node_visits);
  const bool first_unvisited = config_.unvisited == Unvisited::kFirst;
  const NodeId end = block + 1 + header(block).width;
  const auto score_of = [&](NodeId child) {
    const Slot& edge = slot(child);
    const CountTable::Edge counted = table.edge(edge.started);
    double value = edge.value_sum * counted.reciprocal;
    if constexpr (!kPlain) {
      if (config_.backup == Backup::kMax) value = edge.value_sum == kNothing ? 0.0 : edge.value_sum;
      value = config_.alpha * value + (1.0 - config_.alpha) * static_cast<double>(at(critic_, child));
    }
    const float prior = Rule::kNeedsPrior ? at(prior_, child) : 0.0f;
    return Rule::score(table, value, scale, counted, edge.started, prior);
  };

  // Which child is better cannot be predicted, so the loop has no branch on it; ties, which are rare, get a second one.
  NodeId best = block;
  double best_score = kNothing;
  bool tied = false;
  for (NodeId child = block + 1; child < end; ++child) {
    const Slot& edge = slot(child);
    if (link::is_exhausted(edge.link)) continue;
    if ((node_visits == 0 && kPlain && !Rule::kNeedsPrior) || (first_unvisited && edge.started == 0)) return child;
    const double score = score_of(child);
    tied |= score == best_score;
    best = score > best_score ? child : best;
    best_score = score > best_score ? score : best_score;
  }
  if (!tied && best != block) [[likely]] return best;
  if (best == block)  // sums of huge returns have made every score infinite or no number
    while (link::is_exhausted(slot(++best).link)) continue;
  std::uint32_t fewest = slot(best).started;
  for (NodeId child = block + 1; child < end; ++child) {
    const Slot& edge = slot(child);
    if (link::is_exhausted(edge.link) || edge.started >= fewest || score_of(child) != best_score) continue;
    best = child;
    fewest = edge.started;
  }
  return best;
}

Ticket Forest::open_rollout(TreeId tree, NodeId node) noexcept {
  std::uint32_t index = free_rollout_;
  if (index != kNoNode) {
    free_rollout_ = rollouts_[index].node;
    --free_rollouts_;
  } else {
    index = static_cast<std::uint32_t>(rollouts_.size());
    rollouts_.push_back({kNoNode, 0, 0});  // ask has reserved
  }
  Rollout& rollout = rollouts_[index];
  rollout = {node, tree, rollout.generation + 1};
  ++trees_[static_cast<std::size_t>(tree)].open;
  return std::uint64_t{rollout.generation} << 32 | index;
}

/// Puts an entry whose generation has been raised on the free list.
void Forest::close_rollout(std::uint32_t index) noexcept {
  Rollout& rollout = rollouts_[index];
  Tree& tree = trees_[static_cast<std::size_t>(rollout.tree)];
  if (tree.open > 0) --tree.open;
  rollout.node = free_rollout_;
  free_rollout_ = index;
  ++free_rollouts_;
}

/// Trees go down side by side, a level at a time, so that the memory of one is fetched while others choose.
template <typename Rule, bool kPlain>
void Forest::descend(std::span<const TreeId> trees, std::size_t n, Leaves& leaves, std::uint32_t* found) noexcept {
  std::array<Lane, kLanes> lanes;
  const auto arrive = [&](const Lane& lane) {
    Slot& leaf = slot(lane.node);
    if ((leaf.link & link::kPending) != 0) {
      leaves.status[lane.row] = static_cast<std::uint8_t>(AskStatus::kBlocked);
      for (NodeId node = lane.node; node != kNoNode; node = parent_of(node)) --slot(node).started;
      return;
    }
    leaf.link += link::kPendingOne;
    const std::size_t at = lane.row * n + found[lane.row]++;
    leaves.ticket[at] = open_rollout(trees[lane.row], lane.node);
    leaves.node[at] = lane.node;
    leaves.tree[at] = trees[lane.row];
    leaves.depth[at] = static_cast<std::int32_t>(lane.depth);
  };
  for (std::size_t round = 0; round < n; ++round)
    for (std::size_t begin = 0; begin < trees.size(); begin += kLanes) {
      std::size_t count = 0;
      for (std::size_t row = begin; row < std::min(begin + kLanes, trees.size()); ++row) {
        if (leaves.status[row] != static_cast<std::uint8_t>(AskStatus::kOk)) continue;
        const NodeId root = trees_[static_cast<std::size_t>(trees[row])].root;
        if (link::is_exhausted(slot(root).link)) {
          leaves.status[row] = static_cast<std::uint8_t>(AskStatus::kExhausted);
          continue;
        }
        ++slot(root).started;
        lanes[count++] = {root, 0, static_cast<std::uint32_t>(row)};
      }
      while (count > 0)
        for (std::size_t i = 0; i < count;) {
          Lane& lane = lanes[i];
          const Slot& here = slot(lane.node);
          if (link::is_leaf(here.link)) {
            arrive(lane);
            lane = lanes[--count];
            continue;
          }
          const NodeId block = link::block(here.link);
          const NodeId child = select_child<Rule, kPlain>(block, here.started - 1 - header(block).here);
          Slot& edge = slot(child);
          ++edge.started;
          if (!link::is_leaf(edge.link)) {
            const Cell* next = cells_ + link::block(edge.link);
            prefetch(next);
            prefetch(next + 4);
          }
          lane.node = child;
          ++lane.depth;
          ++i;
        }
    }
}

// Best-first search keeps the open leaves of a tree in a heap. An entry may be out of date (its leaf is in flight, or has
// children by now): that shows when it is taken out. A leaf that is free again is put in again; there is room, for the heap
// always has as much to spare as rollouts are in flight.

/// The best open leaf of a tree, in flight.
Forest::One Forest::take_best(TreeId id) noexcept {
  Tree& tree = trees_[static_cast<std::size_t>(id)];
  std::vector<Open>& heap = open_[static_cast<std::size_t>(id)];
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const NodeId leaf = heap.back().node;
    heap.pop_back();
    const std::uint32_t word = slot(leaf).link;
    if (!link::is_leaf(word) || (word & (link::kPending | link::kExhausted)) != 0) continue;
    slot(leaf).link += link::kPendingOne;
    for (NodeId node = leaf; node != kNoNode; node = parent_of(node)) ++slot(node).started;
    return {AskStatus::kOk, open_rollout(id, leaf), leaf};
  }
  return {tree.open > 0 ? AskStatus::kBlocked : AskStatus::kExhausted, 0, kNoNode};
}

void Forest::take_best(std::span<const TreeId> trees, std::size_t n, Leaves& leaves, std::uint32_t* found) noexcept {
  for (std::size_t row = 0; row < trees.size(); ++row)
    for (std::size_t i = 0; i < n; ++i) {
      const auto [status, ticket, node] = take_best(trees[row]);
      leaves.status[row] = static_cast<std::uint8_t>(status);
      if (status != AskStatus::kOk) break;
      const std::size_t at = row * n + found[row]++;
      leaves.ticket[at] = ticket;
      leaves.node[at] = node;
      leaves.tree[at] = trees[row];
      for (NodeId above = parent_of(node); above != kNoNode; above = parent_of(above)) ++leaves.depth[at];
    }
}

/// Makes room for `width` more open leaves of a tree.
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

/// All open leaves of a tree anew.
void Forest::offer_all(TreeId id) {
  const std::vector<NodeId> nodes = below(trees_[static_cast<std::size_t>(id)].root);
  open_[static_cast<std::size_t>(id)].clear();
  make_room(id, nodes.size());
  for (const NodeId node : nodes) {
    const std::uint32_t word = slot(node).link;
    if (link::is_leaf(word) && (word & (link::kPending | link::kExhausted)) == 0) offer(id, node);
  }
}

Leaves Forest::ask(std::span<const TreeId> trees, std::size_t n) {
  if (n < 1) throw std::invalid_argument("n must be at least 1; got 0");
  for (const TreeId id : trees) {
    const Tree& tree = live_tree(id);
    if (slot(tree.root).started > kMaxRollouts - std::min<std::size_t>(n, kMaxRollouts))
      throw std::invalid_argument("a tree must have at most " + std::to_string(kMaxRollouts) + " rollouts; tree " +
                                  std::to_string(id) + " would have more");
  }
  ++asks_;
  for (const TreeId id : trees) {
    Tree& tree = trees_[static_cast<std::size_t>(id)];
    if (tree.stamp == asks_)
      throw std::invalid_argument("a tree must be listed once a call; got tree " + std::to_string(id) + " twice");
    tree.stamp = asks_;
  }
  const std::size_t most = trees.size() * n;
  Leaves leaves{std::vector<Ticket>(most), std::vector<NodeId>(most), std::vector<TreeId>(most),
                std::vector<std::int32_t>(most), std::vector<std::uint8_t>(trees.size())};
  std::vector<std::uint32_t> found(trees.size());
  if (most > free_rollouts_) {
    const std::size_t want = rollouts_.size() + most - free_rollouts_;
    if (want >= kNoNode) throw std::invalid_argument("fewer than 2^32 - 1 rollouts must be in flight at once");
    if (want > rollouts_.capacity()) rollouts_.reserve(std::max(want, 2 * rollouts_.capacity()));
  }
  if (is_best_first())
    take_best(trees, n, leaves, found.data());
  else
    by_rule([&]<typename Rule, bool kPlain>(Rule, std::bool_constant<kPlain>) {
      descend<Rule, kPlain>(trees, n, leaves, found.data());
    });
  std::size_t size = 0;
  for (std::size_t row = 0; row < trees.size(); ++row)
    for (std::size_t i = 0; i < found[row]; ++i, ++size) {
      const std::size_t at = row * n + i;
      if (at == size) continue;
      leaves.ticket[size] = leaves.ticket[at];
      leaves.node[size] = leaves.node[at];
      leaves.tree[size] = leaves.tree[at];
      leaves.depth[size] = leaves.depth[at];
    }
  leaves.ticket.resize(size), leaves.node.resize(size), leaves.tree.resize(size), leaves.depth.resize(size);
  return leaves;
}

Forest::One Forest::ask_one(TreeId id) {
  Tree& tree = live_tree(id);
  Slot* here = &slot(tree.root);
  if (link::is_exhausted(here->link)) return {AskStatus::kExhausted, 0, kNoNode};
  if (here->started == kMaxRollouts) ask(std::span(&id, 1), 1);  // says so
  if (free_rollouts_ == 0 && rollouts_.size() == rollouts_.capacity())
    rollouts_.reserve(std::max<std::size_t>(64, 2 * rollouts_.capacity()));
  if (is_best_first()) return take_best(id);
  NodeId node = tree.root;
  const auto go = [&]<typename Rule, bool kPlain>(Rule, std::bool_constant<kPlain>) {
    while (true) {
      ++here->started;
      if (link::is_leaf(here->link)) return;
      const NodeId block = link::block(here->link);
      node = select_child<Rule, kPlain>(block, here->started - 1 - header(block).here);
      here = &slot(node);
    }
  };
  by_rule(go);
  if ((here->link & link::kPending) != 0) {
    for (; node != kNoNode; node = parent_of(node)) --slot(node).started;
    return {AskStatus::kBlocked, 0, kNoNode};
  }
  here->link += link::kPendingOne;
  return {AskStatus::kOk, open_rollout(id, node), node};
}

// Rollouts -------------------------------------------------------------------------------------------------------------

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

/// A rollout is no longer pending at the node; the counts of the path are the caller's.
void Forest::leave(NodeId node) noexcept {
  Slot& here = slot(node);
  if (link::is_leaf(here.link)) here.link -= link::kPendingOne;
}

std::vector<NodeId> Forest::nodes_of(std::span<const Ticket> tickets) const {
  std::vector<NodeId> nodes(tickets.size());
  for (std::size_t i = 0; i < tickets.size(); ++i) nodes[i] = rollouts_[rollout_of(tickets[i], "find")].node;
  return nodes;
}

std::vector<NodeId> Forest::extend(std::span<const Ticket> tickets, std::span<const std::uint32_t> ranks) {
  check_length("ranks", ranks.size(), "ticket", tickets.size());
  std::vector<NodeId> moved(tickets.size());
  const auto undo = [&](std::size_t done) {
    while (done-- > 0) {
      const NodeId child = moved[done], block = block_of(child);
      --slot(child).started;
      leave(child);
      if (const std::uint32_t at = slot(child).link; !link::is_leaf(at)) --header(link::block(at)).here;
      ++header(block).here;
      rollouts_[static_cast<std::uint32_t>(tickets[done])].node = header(block).parent;
    }
  };
  for (std::size_t i = 0; i < tickets.size(); ++i) {
    try {
      Rollout& rollout = rollouts_[rollout_of(tickets[i], "extend")];
      const std::uint32_t word = slot(rollout.node).link;
      const std::uint32_t width = link::is_leaf(word) ? 0 : header(link::block(word)).width;
      if (ranks[i] >= width)
        throw std::invalid_argument("ranks must be below the children of " + describe(rollout.node) + " (" +
                                    std::to_string(width) + "); got " + std::to_string(ranks[i]));
      const NodeId block = link::block(word), child = block + 1 + ranks[i];
      Slot& edge = slot(child);
      if (link::is_leaf(edge.link)) {
        if ((edge.link & link::kPending) == link::kPending)
          throw std::invalid_argument("fewer than 8192 rollouts must be pending at one leaf; got " + describe(child));
        edge.link += link::kPendingOne;
      } else {
        ++header(link::block(edge.link)).here;
      }
      ++edge.started;
      --header(block).here;
      rollout.node = moved[i] = child;
    } catch (...) {
      undo(i);
      throw;
    }
  }
  return moved;
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
  const auto any = [](std::span<const float> values) {
    return std::any_of(values.begin(), values.end(), [](float value) { return value != 0.0f; });
  };
  if (any(critic_values)) materialise(critic_);
  if (any(logps)) materialise(logp_);
  if (any(priors)) materialise(prior_);

  std::vector<NodeId> first(tickets.size());
  for (std::size_t i = 0; i < tickets.size(); ++i) {
    const auto undo = [&] {
      for (std::size_t j = 0; j < i; ++j) slot(first[j]).link &= ~link::kTerminal;
    };
    NodeId node = kNoNode;
    try {
      node = rollouts_[rollout_of(tickets[i], "expand")].node;
    } catch (...) {
      undo();
      throw;
    }
    const std::uint32_t word = slot(node).link;
    if (!link::is_leaf(word) || (word & link::kTerminal) != 0) {
      undo();
      const std::string got = link::is_leaf(word) ? "a terminal node, or the same twice"
                                                  : std::to_string(header(link::block(word)).width) + " children";
      throw std::invalid_argument(describe(node) + " must be a leaf to be expanded, and once a call; got " + got);
    }
    slot(node).link |= link::kTerminal;  // marks it as listed, until its turn below
    first[i] = node;
  }

  const auto fill = [](const std::shared_ptr<Reserve>& column, NodeId at, std::span<const float> values,
                       std::size_t from, std::uint32_t width, float otherwise) {
    if (!column) return;
    if (values.empty())
      std::fill_n(column->as<float>() + at, width, otherwise);
    else
      std::copy_n(values.data() + from, width, column->as<float>() + at);
  };
  std::size_t done = 0;
  for (std::size_t i = 0; i < tickets.size(); done += widths[i++]) {
    const NodeId node = first[i];
    slot(node).link &= ~link::kTerminal;
    first[i] = grow(node, rollouts_[static_cast<std::uint32_t>(tickets[i])].tree, widths[i]);
    if (first[i] == kNoNode) continue;
    fill(critic_, first[i], critic_values, done, widths[i], 0.0f);
    fill(logp_, first[i], logps, done, widths[i], 0.0f);
    fill(prior_, first[i], priors, done, widths[i], 1.0f / static_cast<float>(widths[i]));
    if (is_best_first())
      for (std::uint32_t k = 0; k < widths[i]; ++k)
        offer(rollouts_[static_cast<std::uint32_t>(tickets[i])].tree, first[i] + k);
  }
  return first;
}

/// Children for a leaf that may have them, their values not filled in; kNoNode at the byte limit.
NodeId Forest::grow(NodeId leaf, TreeId id, std::uint32_t width) {
  Tree& tree = trees_[static_cast<std::size_t>(id)];
  if (is_best_first()) make_room(id, width);
  const NodeId block = allocate(tree, width);
  if (block == kNoNode) return kNoNode;
  Slot& here = slot(leaf);
  lay_block(block, leaf, here.link & link::kIndex, width, here.started);
  here.link = block >> 1;
  tree.nodes += width;
  return block + 1;
}

NodeId Forest::expand_one(Ticket ticket, std::uint32_t width) {
  const Rollout& rollout = rollouts_[rollout_of(ticket, "expand")];
  const std::uint32_t word = slot(rollout.node).link;
  if (critic_ || logp_ || prior_ || is_best_first() || width < 1 || width > kMaxWidth || !link::is_leaf(word) ||
      (word & link::kTerminal) != 0)
    return expand(std::span(&ticket, 1), std::span(&width, 1), {}, {}, {})[0];  // fills values in, or says what is wrong
  return grow(rollout.node, rollout.tree, width);
}

void Forest::set_terminal(std::span<const Ticket> tickets) {
  const std::vector<NodeId> nodes = nodes_of(tickets);
  for (const NodeId node : nodes)
    if (!link::is_leaf(slot(node).link))
      throw std::invalid_argument(describe(node) + " must be a leaf to be terminal; got " +
                                  std::to_string(children(node).second) + " children");
  for (const NodeId node : nodes) slot(node).link |= link::kTerminal;
}

bool Forest::all_exhausted(NodeId block) const noexcept {
  for (NodeId child = block + 1; child <= block + header(block).width; ++child)
    if (!link::is_exhausted(slot(child).link)) return false;
  return true;
}

void Forest::mark_exhausted(NodeId node) noexcept {
  while (true) {
    slot(node).link |= link::kExhausted;
    const NodeId block = block_of(node);
    node = header(block).parent;
    if (node == kNoNode || !all_exhausted(block)) return;
  }
}

void Forest::tell(std::span<const Ticket> tickets, std::span<const double> returns) {
  check_length("returns", returns.size(), "ticket", tickets.size());
  check_finite("returns", returns);
  take(tickets, "tell");
  for (std::size_t i = 0; i < tickets.size(); ++i) back_up(static_cast<std::uint32_t>(tickets[i]), returns[i]);
}

void Forest::tell_one(Ticket ticket, double value) {
  if (!std::isfinite(value)) check_finite("returns", std::span<const double>(&value, 1));
  const std::uint32_t index = rollout_of(ticket, "tell");
  ++rollouts_[index].generation;
  back_up(index, value);
}

/// Ends a rollout whose generation has been raised with a return.
void Forest::back_up(std::uint32_t index, double value) noexcept {
  const NodeId leaf = rollouts_[index].node;
  const bool is_max = config_.backup == Backup::kMax;
  const double discount = config_.discount;
  leave(leaf);
  for (NodeId node = leaf, block = block_of(leaf);; value *= discount) {
    double& sum = slot(node).value_sum;
    sum = is_max ? std::max(sum, value) : sum + value;
    if (squares_) squares_->as<double>()[node] += value * value;
    const Header& above = header(block);
    node = above.parent;
    if (node == kNoNode) break;
    block = node - 1 - above.index;
  }
  if (config_.exhaust && (slot(leaf).link & (link::kLeaf | link::kTerminal)) == (link::kLeaf | link::kTerminal))
    mark_exhausted(leaf);
  free_again(index);
  close_rollout(index);
}

void Forest::cancel(std::span<const Ticket> tickets) {
  take(tickets, "cancel");
  for (const Ticket ticket : tickets) {
    const auto index = static_cast<std::uint32_t>(ticket);
    const NodeId at = rollouts_[index].node;
    leave(at);
    if (const std::uint32_t word = slot(at).link; !link::is_leaf(word)) --header(link::block(word)).here;
    for (NodeId node = at; node != kNoNode; node = parent_of(node)) --slot(node).started;
    free_again(index);
    close_rollout(index);
  }
}

/// A leaf that no rollout waits at any more is open to best-first search.
void Forest::free_again(std::uint32_t index) noexcept {
  const auto [leaf, tree, generation] = rollouts_[index];
  if (!is_best_first()) return;
  const std::uint32_t word = slot(leaf).link;
  if (link::is_leaf(word) && (word & (link::kPending | link::kExhausted)) == 0) offer(tree, leaf);
}

Forest::Counts Forest::in_flight() const {
  Counts counts;
  for (const Rollout& rollout : rollouts_)
    if ((rollout.generation & 1) != 0)
      for (NodeId node = rollout.node; node != kNoNode; node = parent_of(node)) ++counts[node];
  return counts;
}

// Structure ------------------------------------------------------------------------------------------------------------

std::pair<NodeId, std::uint32_t> Forest::children(NodeId node) const {
  check_node(node);
  const std::uint32_t word = slot(node).link;
  if (link::is_leaf(word)) return {kNoNode, 0};
  return {link::block(word) + 1, header(link::block(word)).width};
}

std::vector<NodeId> Forest::path(NodeId node) const {
  check_node(node);
  std::vector<NodeId> path;
  for (; node != kNoNode; node = parent_of(node)) path.push_back(node);
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<NodeId> Forest::below(NodeId node) const {
  std::vector<NodeId> nodes{node};
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const std::uint32_t word = slot(nodes[i]).link;
    if (link::is_leaf(word)) continue;
    const NodeId block = link::block(word);
    for (NodeId child = block + 1; child <= block + header(block).width; ++child) nodes.push_back(child);
  }
  return nodes;
}

TreeTable Forest::table(std::span<const TreeId> trees) const {
  const Counts counts = in_flight();
  TreeTable t;
  for (const TreeId tree : trees) {
    const std::vector<NodeId> nodes = below(live_tree(tree).root);
    t.id.insert(t.id.end(), nodes.begin(), nodes.end());
    t.tree.resize(t.id.size(), tree);
  }
  const std::size_t n = t.id.size();
  if (n > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
    throw std::invalid_argument("a table must have fewer than 2^31 rows; got " + std::to_string(n));
  t.parent.assign(n, -1), t.depth.assign(n, 0);
  t.visit_count.resize(n), t.in_flight.resize(n), t.value_sum.resize(n), t.square_sum.resize(squares_ ? n : 0);
  t.critic_value.resize(n), t.logp.resize(n), t.prior.resize(n), t.flags.resize(n);
  std::size_t next = 0;
  for (std::size_t row = 0; row < n; ++row) {
    if (row == 0 || t.tree[row] != t.tree[row - 1]) next = row + 1;  // a root; its children are the next rows
    const NodeId node = t.id[row];
    const Slot& here = slot(node);
    const auto found = counts.find(node);
    t.in_flight[row] = found == counts.end() ? 0 : found->second;
    t.visit_count[row] = here.started - t.in_flight[row];
    t.value_sum[row] = here.value_sum == kNothing ? 0.0 : here.value_sum;
    if (squares_) t.square_sum[row] = squares_->as<double>()[node];
    t.critic_value[row] = at(critic_, node), t.logp[row] = at(logp_, node), t.prior[row] = at(prior_, node);
    t.flags[row] = link::is_exhausted(here.link) ? kExhausted : 0;
    if (link::is_leaf(here.link)) {
      if ((here.link & link::kTerminal) != 0) t.flags[row] |= kTerminal;
      continue;
    }
    for (std::uint32_t i = header(link::block(here.link)).width; i > 0; --i, ++next) {
      t.parent[next] = static_cast<std::int32_t>(row);
      t.depth[next] = t.depth[row] + 1;
    }
  }
  return t;
}

void Forest::prune(NodeId node) {
  check_node(node);
  if (link::is_leaf(slot(node).link)) return;
  if (in_flight().contains(node))
    throw std::invalid_argument("nothing must be in flight through " + describe(node) + " to prune it");
  NodeId top = node;
  while (parent_of(top) != kNoNode) top = parent_of(top);
  Tree& tree = *std::find_if(trees_.begin(), trees_.end(), [top](const Tree& t) { return t.root == top; });
  const std::vector<NodeId> cut = below(node);
  const std::uint32_t index = header(link::block(slot(node).link)).index;
  for (const NodeId inner : cut)
    if (const std::uint32_t word = slot(inner).link; !link::is_leaf(word))
      heads_[link::block(word) >> 7] &= ~(std::uint64_t{1} << (link::block(word) >> 1 & 63));
  slot(node).link = link::kLeaf | index;
  num_nodes_ -= cut.size() - 1;
  tree.nodes -= static_cast<std::uint32_t>(cut.size() - 1);
  for (NodeId above = parent_of(node); above != kNoNode; above = parent_of(above)) slot(above).link &= ~link::kExhausted;
  if (is_best_first()) offer_all(static_cast<TreeId>(&tree - trees_.data()));
}

std::pair<std::vector<NodeId>, std::vector<NodeId>> Forest::reroot(TreeId id, NodeId node) {
  Tree& tree = live_tree(id);
  check_node(node);
  if (tree.open > 0) throw std::invalid_argument("nothing must be in flight in tree " + std::to_string(id) + " to re-root it");
  if (path(node).front() != tree.root)
    throw std::invalid_argument(describe(node) + " must be in tree " + std::to_string(id) + " to be its root");
  std::vector<NodeId> old = below(node), now(old.size());
  Tree fresh;
  const std::uint64_t nodes_before = num_nodes_;
  const auto copy = [&](NodeId from, NodeId to) {  // all but the word that says where it lies
    slot(to).value_sum = slot(from).value_sum;
    slot(to).started = slot(from).started;
    slot(to).link |= slot(from).link & (link::is_leaf(slot(from).link) ? link::kExhausted | link::kTerminal : 0);
    for (const auto& column : {critic_, logp_, prior_})
      if (column) column->as<float>()[to] = column->as<float>()[from];
    if (squares_) squares_->as<double>()[to] = squares_->as<double>()[from];
  };
  std::size_t next = 1;
  for (std::size_t i = 0; i <= old.size(); ++i) {  // the root's own block, then each inner node's
    const bool is_root = i == 0;
    const std::uint32_t word = is_root ? 0 : slot(old[i - 1]).link;
    if (!is_root && link::is_leaf(word)) continue;
    const std::uint32_t width = is_root ? 1 : header(link::block(word)).width;
    const NodeId block = allocate(fresh, width);
    if (block == kNoNode) {
      free_chunks(fresh);
      num_nodes_ = nodes_before;
      throw ByteLimit("old and new tree must fit max_bytes (" + std::to_string(config_.max_bytes) + ") together");
    }
    if (is_root) {
      lay_block(block, kNoNode, 0, 1, 0);
      copy(node, now[0] = block + 1);
      continue;
    }
    Slot& parent = slot(now[i - 1]);
    lay_block(block, now[i - 1], parent.link & link::kIndex, width, header(link::block(word)).here);
    parent.link = block >> 1 | (word & link::kExhausted);
    for (std::uint32_t k = 0; k < width; ++k, ++next) copy(old[next], now[next] = block + 1 + k);
  }
  free_chunks(tree);
  num_nodes_ = nodes_before - tree.nodes + old.size();
  fresh.root = now[0];
  fresh.nodes = static_cast<std::uint32_t>(old.size());
  tree = fresh;
  if (is_best_first()) offer_all(id);
  return {std::move(old), std::move(now)};
}

}  // namespace agentq
