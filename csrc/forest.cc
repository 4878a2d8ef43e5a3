// Settings and trees.
#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "csrc/check.h"
#include "csrc/forest.h"

namespace agentq {
namespace {

constexpr std::size_t kMaxTrees = std::numeric_limits<TreeId>::max();

}  // namespace

Forest::Forest(const ForestConfig& config) : config_(config) {
  if (!std::isfinite(config.c_exp) || config.c_exp < 0)
    throw std::invalid_argument("c_exp must be finite and at least 0; got " + std::to_string(config.c_exp));
  if (!(config.discount > 0 && config.discount <= 1))
    throw std::invalid_argument("discount must be in (0, 1]; got " + std::to_string(config.discount));
  if (!(config.alpha >= 0 && config.alpha <= 1))
    throw std::invalid_argument("alpha must be in [0, 1]; got " + std::to_string(config.alpha));
  const bool draws = config.selection >= Selection::kGumbel;
  if (draws && (config.backup != Backup::kMean || config.alpha != 1))
    throw std::invalid_argument("gumbel and thompson selection must have backup mean and alpha 1; got " +
                                std::string(config.backup == Backup::kMean ? "mean" : "max") + " and " +
                                std::to_string(config.alpha));
  if (config.selection == Selection::kGumbel && (config.num_simulations < 1 || config.max_considered < 1))
    throw std::invalid_argument("num_simulations and max_considered must be at least 1 with selection gumbel; got " +
                                std::to_string(config.num_simulations) + " and " +
                                std::to_string(config.max_considered));
  if (config.transpositions && config.selection > Selection::kPuct)
    throw std::invalid_argument("transpositions must go with selection ucb1, uct or puct");
  if (!std::isfinite(config.gumbel_scale) || config.gumbel_scale < 0)
    throw std::invalid_argument("gumbel_scale must be finite and at least 0; got " +
                                std::to_string(config.gumbel_scale));
  if (config.max_bytes < 4096 || config.max_bytes > kMaxCells * sizeof(Cell))
    throw std::invalid_argument("max_bytes must be in [4096, " + std::to_string(kMaxCells * sizeof(Cell)) + "]; got " +
                                std::to_string(config.max_bytes));
  if (config.selection == Selection::kUct) config_.unvisited = Unvisited::kFirst;
  if (config.selection == Selection::kThompsonGaussian) config_.squares = true;
  const std::uint64_t most_cells = config.max_bytes / sizeof(Cell);
  cell_memory_ = Reserve::make(most_cells * sizeof(Cell));
  head_memory_ = Reserve::make_zeroed(most_cells / 16 + 64);
  cells_ = cell_memory_->as<Cell>();
  heads_ = head_memory_->as<std::uint64_t>();
  set_threads(config.threads);
  std::fill(std::begin(free_chunk_), std::end(free_chunk_), kNoNode);
  if (config.selection == Selection::kPuct || config.selection == Selection::kGumbel) materialise(prior_);
  if (!std::isnan(config.success_at)) successes_ = Reserve::make(most_cells * sizeof(std::uint32_t));
  if (config_.squares) squares_ = Reserve::make(most_cells * sizeof(double));
}


void Forest::check_node(NodeId node) const {
  if (!is_node(node)) throw std::out_of_range("no node " + std::to_string(node));
}

void Forest::no_tree(TreeId tree) const {
  if (static_cast<std::size_t>(tree) < trees_.size())
    throw std::out_of_range("tree " + std::to_string(tree) + " has been dropped");
  throw std::out_of_range("no tree " + std::to_string(tree) + "; there are " + std::to_string(trees_.size()));
}

std::vector<TreeId> Forest::add_trees(std::size_t count) {
  if (count > kMaxTrees - trees_.size())
    throw std::invalid_argument("a forest must have at most " + std::to_string(kMaxTrees) + " trees; got " +
                                std::to_string(trees_.size()) + " and " + std::to_string(count) + " more");
  const auto refuse = [&] {
    throw ByteLimit("the trees of a forest must fit max_bytes (" + std::to_string(config_.max_bytes) + "); got " +
                    std::to_string(count) + " more trees");
  };
  if ((used_cells_ + (count << kFirstChunk)) * bytes_per_cell() > config_.max_bytes) refuse();
  std::vector<TreeId> ids(count);
  const std::size_t before = trees_.size();
  if (is_best_first()) {
    open_.resize(before + count);
    for (std::size_t i = 0; i < count; ++i) open_[before + i].reserve(2);
  }
  trees_.resize(before + count);
  if (state_) states_.resize(before + count);
  for (std::size_t i = 0; i < count; ++i) {
    Tree& tree = trees_[before + i];
    const NodeId block = claim(tree, 1, 1);
    if (block == kNoNode) {
      for (std::size_t j = 0; j < i; ++j) free_chunks(trees_[before + j]);
      num_nodes_ -= i;
      trees_.resize(before);
      if (is_best_first()) open_.resize(before);
      if (state_) states_.resize(before);
      refuse();
    }
    lay_block(block, kNoNode, 0, 1, static_cast<std::uint32_t>(before + i));
    if (critic_) critic_->as<float>()[block + 1] = 0.0f;
    if (logp_) logp_->as<float>()[block + 1] = 0.0f;
    if (prior_) prior_->as<float>()[block + 1] = 1.0f;
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
    tree.root = kNoNode;
    if (is_best_first()) open_[static_cast<std::size_t>(id)] = {};
    if (state_) states_of(id) = {};
  }
  for (std::uint32_t i = 0; open > 0 && i < rollouts_.size(); ++i)
    if (rollouts_[i].ticket != ticket::kNone && trees_[static_cast<std::size_t>(rollouts_[i].tree)].root == kNoNode) {
      rollouts_[i].ticket = ticket::kNone;
      close_rollout(i);
      --open;
    }
}

NodeId Forest::root(TreeId tree) const { return live_tree(tree).root; }

void Forest::set_threads(std::uint32_t threads) {
  if (threads < 1 || threads > 1024)
    throw std::invalid_argument("threads must be in [1, 1024]; got " + std::to_string(threads));
  crew_ = threads > 1 ? std::make_unique<Crew>(threads) : nullptr;
  config_.threads = threads;
}

std::vector<TreeId> Forest::trees() const {
  std::vector<TreeId> live;
  for (std::size_t i = 0; i < trees_.size(); ++i)
    if (trees_[i].root != kNoNode) live.push_back(static_cast<TreeId>(i));
  return live;
}

}  // namespace agentq
