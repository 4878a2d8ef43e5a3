// Selection by random draws: Gumbel search with sequential halving, Thompson sampling that goes wider or deeper. Also
// the recommended action.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <tuple>

#include "csrc/draws.h"
#include "csrc/forest.h"

namespace agentq {
namespace {

/// Statistics of observed returns: their number, their sum, the sum of their squares.
struct Seen {
  double n = 0, sum = 0, squares = 0;

  void add(const Seen& other, double sign = 1.0) {
    n += sign * other.n, sum += sign * other.sum, squares += sign * other.squares;
  }
};

/// A draw from the posterior of the mean: normal with unknown mean and variance, prior m0 = 0, kappa0 = 1, nu0 = 1,
/// tau0^2 = 0.1, as Inoue et al. 2025, arXiv:2503.04412, appendix; the update: Murphy 2023, section 3.4.3.3.
double draw_gaussian(Draws& draws, const Seen& seen) {
  const double mean = seen.n > 0 ? seen.sum / seen.n : 0.0;
  const double spread = std::max(0.0, seen.squares - seen.n * mean * mean);
  const double kappa = 1.0 + seen.n, nu = 1.0 + seen.n;
  const double m = seen.n * mean / kappa;
  const double nu_tau = 0.1 + spread + seen.n * mean * mean / kappa;  // nu * tau^2
  const double variance = 0.5 * nu_tau / draws.gamma(0.5 * nu);       // inverse gamma
  return m + std::sqrt(variance / kappa) * draws.normal();
}

/// The same for returns in [0, 1] with a Beta(1/2, 1/2) prior.
double draw_beta(Draws& draws, const Seen& seen) { return draws.beta(0.5 + seen.sum, 0.5 + seen.n - seen.sum); }

/// Sequential halving over m children and `budget` rollouts: the visit count of the children eligible for rollout t.
/// Each phase gives its survivors equally many visits. The better half survives, at least 2, also past the budget.
/// Source: Karnin et al. 2013; Danihelka et al. 2022, "Policy improvement by planning with Gumbel", figure 1.
std::uint64_t considered_visits(std::uint64_t m, std::uint64_t budget, std::uint64_t t) {
  if (m <= 1) return t;
  const auto phases = static_cast<std::uint64_t>(std::bit_width(m - 1));  // ceil(log2 m)
  std::uint64_t visits = 0;
  for (std::uint64_t left = m; left > 2; left = std::max<std::uint64_t>(2, left / 2)) {
    const std::uint64_t each = std::max<std::uint64_t>(1, budget / (phases * left));
    if (t < each * left) return visits + t / left;
    t -= each * left;
    visits += each;
  }
  return visits + t / 2;
}

}  // namespace

/// The improved policy over the children of a node, for Gumbel search.
///
///     completed Q(b) = Q(b) if visited, else v_mix;   sigma(q) = (50 + max N) * 0.1 * (q - min) / (max - min)
///     v_mix = (v + N * sum P Q / sum P) / (1 + N), sums over visited b;   v: mean return of rollouts ended at the node
///     pi'(b) = softmax(log P(b) + sigma(completed Q(b)))
///
/// Source: Danihelka et al. 2022, eq. 8, 11 and appendix D, with mctx's constants and scaling. Ours: if there is no v,
/// v_mix is only the weighted Q.
struct Forest::Improved {
  Improved(const Forest& forest, NodeId node) : f(forest), block(link::block(forest.slot(node).link)) {
    double weight = 0, weighted = 0, below = 0;
    f.for_children(block, [&](NodeId child) {
      const Slot& edge = f.slot(child);
      visits += edge.visits_started, most = std::max<std::uint64_t>(most, edge.visits_started), ++width;
      below += edge.value_sum;
      if (edge.visits_started == 0) return;
      weight += prior(child), weighted += prior(child) * q(child);
    });
    const double own = f.header(block).here;
    const double v = own > 0 ? (f.slot(node).value_sum - below) / own : 0.0;
    const double n = static_cast<double>(visits), q_here = visits > 0 ? weighted / weight : 0.0;
    mix = own > 0 ? (v + n * q_here) / (1.0 + n) : q_here;
    double least = std::numeric_limits<double>::infinity(), largest = -least;
    f.for_children(block, [&](NodeId child) {
      least = std::min(least, completed(child)), largest = std::max(largest, completed(child));
    });
    low = least;
    scale = (50.0 + static_cast<double>(most)) * 0.1 / std::max(largest - least, 1e-8);
    f.for_children(block, [&](NodeId child) { top = std::max(top, logit(child)); });
    f.for_children(block, [&](NodeId child) { total += std::exp(logit(child) - top); });
  }

  double prior(NodeId child) const {
    return std::max(static_cast<double>(at(f.prior_, child)), double{std::numeric_limits<float>::min()});
  }
  double q(NodeId child) const { return f.slot(child).value_sum * (1.0 / f.slot(child).visits_started); }
  double completed(NodeId child) const { return f.slot(child).visits_started > 0 ? q(child) : mix; }
  double sigma(NodeId child) const { return scale * (completed(child) - low); }
  double logit(NodeId child) const { return std::log(prior(child)) + sigma(child); }
  double improved(NodeId child) const { return std::exp(logit(child) - top) / total; }

  const Forest& f;
  NodeId block;
  std::uint64_t visits = 0, most = 0, width = 0;
  double mix = 0, low = 0, scale = 0, top = -std::numeric_limits<double>::infinity(), total = 0;
};

/// At a root: the child with the largest g + log P + sigma among those whose visits match sequential halving (or are
/// nearest to it). Below: the largest pi' - N(b) / (1 + N). Ties by lower index; exhausted children are skipped.
NodeId Forest::gumbel_child(TreeId id, NodeId node) const noexcept {
  const Improved here(*this, node);
  const Tree& tree = trees_[static_cast<std::size_t>(id)];
  const bool is_root = node == tree.root;
  const std::uint64_t m = std::min<std::uint64_t>(config_.max_considered, here.width);
  const std::uint64_t since = here.visits - std::min<std::uint64_t>(tree.base, here.visits);
  const std::uint64_t considered = considered_visits(m, config_.num_simulations, since);
  Draws draws = root_draws(id);
  NodeId best = kNoNode;
  std::uint64_t nearest = 0;
  double best_score = 0;
  for_children(here.block, [&](NodeId child) {
    const double noise = is_root ? config_.gumbel_scale * draws.gumbel() : 0.0;
    const std::uint64_t n = slot(child).visits_started;
    if (link::is_exhausted(slot(child).link)) return;
    const std::uint64_t away = !is_root ? 0 : n > considered ? n - considered : considered - n;
    const double score = is_root ? noise + here.logit(child)
                                 : here.improved(child) - static_cast<double>(n) / (1.0 + static_cast<double>(here.visits));
    if (best != kNoNode && (away > nearest || (away == nearest && !(score > best_score)))) return;
    best = child, nearest = away, best_score = score;
  });
  return best;
}

/// The stream of a root's noise: one draw per child, in order.
Draws Forest::root_draws(TreeId id) const noexcept {
  const Tree& tree = trees_[static_cast<std::size_t>(id)];
  return Draws(config_.seed, static_cast<std::uint64_t>(id), ~std::uint64_t{tree.reroots});
}

/// Chooses wider or deeper by comparing two draws: the value of a new child, and the value below the present children.
/// Deeper goes to the child with the largest draw. The posterior of a new child uses the returns told at the present
/// children themselves, that of deeper the returns told below them, and that of one child both. Children without a told
/// return are skipped.
/// Source: Inoue et al. 2025, "Wider or deeper?", arXiv:2503.04412, section 3.3 (AB-MCTS-A).
/// @return  a child to descend to, or the node itself to go wider.
NodeId Forest::thompson_child(Draws& draws, NodeId node) const noexcept {
  const auto all_of = [&](NodeId at) {
    return Seen{double(slot(at).visits_started), slot(at).value_sum, squares_ ? squares_->as<double>()[at] : 0.0};
  };
  const auto draw = [&](const Seen& seen) {
    return config_.selection == Selection::kThompsonBeta ? draw_beta(draws, seen) : draw_gaussian(draws, seen);
  };
  const auto is_known = [&](NodeId child) {
    const std::uint32_t word = slot(child).link;
    return !link::is_leaf(word) || slot(child).visits_started > (word & link::kPending) / link::kPendingOne;
  };
  Seen wider, deeper;
  const NodeId block = link::block(slot(node).link);
  for_children(block, [&](NodeId child) {
    if (!is_known(child)) return;
    Seen own = all_of(child);
    deeper.add(own);
    if (const std::uint32_t word = slot(child).link; !link::is_leaf(word))
      for_children(link::block(word), [&](NodeId below) { own.add(all_of(below), -1.0); });
    wider.add(own);
  });
  deeper.add(wider, -1.0);
  const double new_child = draw(wider), old_child = draw(deeper);
  NodeId best = node;
  double best_draw = 0;
  if (old_child > new_child)
    for_children(block, [&](NodeId child) {
      if (!is_known(child) || link::is_exhausted(slot(child).link)) return;
      const double value = draw(all_of(child));
      if (best == node || value > best_draw) best = child, best_draw = value;
    });
  return best;
}

/// Descends to a leaf, or to a node to widen, by a rule that draws.
Found Forest::walk(TreeId id) noexcept {
  NodeId node = trees_[static_cast<std::size_t>(id)].root;
  if (link::is_exhausted(slot(node).link)) return {AskStatus::kExhausted, kNoNode};
  Draws draws(config_.seed, static_cast<std::uint64_t>(id), slot(node).visits_started);
  std::int32_t depth = 0;
  for (;; ++depth) {
    ++slot(node).visits_started;
    if (link::is_leaf(slot(node).link)) break;
    const NodeId next = is_thompson() ? thompson_child(draws, node) : gumbel_child(id, node);
    if (next == node) break;
    node = next;
  }
  Slot& here = slot(node);
  if (!link::is_leaf(here.link)) {
    ++header(link::block(here.link)).here;
  } else {
    const std::uint32_t pending = here.link & link::kPending;  // Thompson may widen one leaf several times at once
    if (pending != 0 && (!is_thompson() || pending == link::kPending)) {
      unstart(node);
      return {AskStatus::kBlocked, kNoNode};
    }
    here.link += link::kPendingOne;
  }
  return {AskStatus::kOk, node, depth};
}

/// The largest mean return of an ended episode told at or below a node; -infinity if none is known.
double Forest::best_end(NodeId node) const {
  double best = -std::numeric_limits<double>::infinity();
  for (const NodeId end : below(node)) {
    const Slot& s = slot(end);
    const std::uint32_t told = s.visits_started - (s.link & link::kPending) / link::kPendingOne;
    if (link::is_leaf(s.link) && (s.link & link::kTerminal) != 0 && told > 0) best = std::max(best, s.value_sum / told);
  }
  return best;
}

std::vector<NodeId> Forest::recommend(std::span<const TreeId> trees) const {
  const Counts counts = in_flight();
  std::vector<NodeId> chosen;
  for (const TreeId tree : trees) {
    const NodeId root = live_tree(tree).root;
    NodeId best = kNoNode;
    std::tuple<double, bool, std::uint32_t, double> best_rank;
    const auto look = [&](NodeId child, double value) {
      const std::uint32_t visit_count = slot(child).visits_started - count_of(counts, child);
      if (visit_count == 0) return;
      const double end = config_.exhaust ? best_end(child) : 0.0;
      const std::tuple rank(end, !link::is_exhausted(slot(child).link), visit_count, value);
      if (best == kNoNode || rank > best_rank) best = child, best_rank = rank;
    };
    const std::uint32_t word = slot(root).link;
    if (link::is_leaf(word)) {
    } else if (config_.selection == Selection::kGumbel) {
      const Improved here(*this, root);
      Draws draws = root_draws(tree);
      for_children(here.block,
                   [&](NodeId child) { look(child, config_.gumbel_scale * draws.gumbel() + here.logit(child)); });
    } else {
      for_children(link::block(word), [&](NodeId child) { look(child, mean_value(child)); });
    }
    chosen.push_back(best);
  }
  return chosen;
}

}  // namespace agentq
