// Writing: the pages and trees of a record, as of everything in flight cancelled.
#include "csrc/journal.h"

#include <algorithm>
#include <bit>
#include <map>
#include <string>

#include "csrc/snapshot.h"

namespace agentq {
namespace {

/// Gathers what goes into a record, sums it up and hands it on.
class Stream {
 public:
  Stream(const Journal::Sink& sink, std::uint64_t start) : sink_(sink), sum_(start) {}

  void put(std::span<const char> bytes) {
    while (!bytes.empty()) {
      const std::size_t take = std::min(kGather - gathered_.size(), bytes.size());
      gathered_.append(bytes.data(), take);
      bytes = bytes.subspan(take);
      if (gathered_.size() == kGather) flush();
    }
  }
  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    put(std::span(reinterpret_cast<const char*>(&value), sizeof(T)));
  }
  /// The checksum of it all, which goes after it.
  std::uint64_t seal() {
    sum_.add(gathered_);
    const std::uint64_t sum = sum_.value();
    gathered_.append(reinterpret_cast<const char*>(&sum), sizeof(sum));
    sink_(gathered_);
    return sum;
  }

 private:
  static constexpr std::size_t kGather = std::size_t{1} << 18;

  void flush() {
    sum_.add(gathered_);
    sink_(gathered_);
    gathered_.clear();
  }

  const Journal::Sink& sink_;
  Checksum sum_;
  std::string gathered_;
};

}  // namespace

std::vector<Forest::Column> Forest::columns() const {
  return {{critic_, sizeof(float)},   {logp_, sizeof(float)},          {prior_, sizeof(float)},
          {squares_, sizeof(double)}, {successes_, sizeof(std::uint32_t)}, {state_, sizeof(std::uint32_t)}};
}

std::uint32_t Forest::columns_there() const {
  std::uint32_t there = 0, bit = 1;
  for (const Column& column : columns()) there |= column.memory ? bit : 0, bit <<= 1;
  return there;
}

/// A page or an entry at a time as it is to be saved.
class Journal::Pages {
 public:
  Pages(const Forest& forest, std::uint32_t cells) : f_(forest), cells_(cells), columns_(forest.columns()) {
    std::erase_if(columns_, [](const Forest::Column& column) { return !column.memory; });
    for (const auto& [node, count] : f_.in_flight()) {
      takes_back_.push_back({node, count, false});
      if (const auto state = f_.state_of(node); state != 0) states_[{f_.tree_of(node), state - 1}] += count;
    }
    Forest::Counts waiting;
    for (const Forest::Rollout& rollout : f_.rollouts_)
      if (rollout.ticket != ticket::kNone && !link::is_leaf(f_.slot(rollout.node).link)) ++waiting[rollout.node];
    for (const auto& [node, count] : waiting) takes_back_.push_back({link::block(f_.slot(node).link), count, true});
    std::sort(takes_back_.begin(), takes_back_.end(), [](const auto& a, const auto& b) { return a.cell < b.cell; });
  }

  std::size_t bytes_of(std::uint32_t page) const {
    std::size_t each = sizeof(Cell);
    for (const Forest::Column& column : columns_) each += column.size;
    return each * cells_of_page(page, cells_);
  }

  /// Good until the next.
  std::span<const char> page(std::uint32_t page) {
    first_ = page * kPageCells, end_ = first_ + cells_of_page(page, cells_);
    out_.assign(bytes_of(page), '\0');
    std::size_t word = first_ >> 7;
    for (std::size_t back = 0; word > 0 && back <= kMaxWidth / 128 + 1; ++back)  // the block that reaches into the page
      if (const std::uint64_t bits = f_.heads_[--word]; bits != 0) {
        copy(static_cast<NodeId>((word << 6 | (63 - static_cast<unsigned>(std::countl_zero(bits)))) << 1));
        break;
      }
    for (word = first_ >> 7; word << 7 < end_; ++word)
      for (std::uint64_t bits = f_.heads_[word]; bits != 0; bits &= bits - 1)
        copy(static_cast<NodeId>((word << 6 | static_cast<unsigned>(std::countr_zero(bits))) << 1));
    cancel();
    return out_;
  }

  std::span<const char> entry(std::uint32_t id) {
    out_.clear();
    const Forest::Tree& tree = f_.trees_[id];
    const auto put = [this](const auto& value) { out_.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
    if (tree.root == kNoNode) {
      put(std::uint64_t{kNoNode});
      return out_;
    }
    TreeEntry entry{tree.root, tree.bump - tree.chunks, tree.next_size, tree.reroots, tree.base, 0, 0, 0};
    const std::span<const State> states = f_.states(static_cast<TreeId>(id));
    entry.states = static_cast<std::uint32_t>(states.size());
    for (std::uint32_t chunk = tree.chunks; chunk != kNoNode; chunk = f_.header(chunk).parent) ++entry.chunks;
    put(entry);
    for (std::uint32_t chunk = tree.chunks; chunk != kNoNode; chunk = f_.header(chunk).parent)
      put(Chunk{chunk, f_.header(chunk).here});
    for (std::uint32_t i = 0; i < states.size(); ++i) {
      const auto back = states_.find({static_cast<TreeId>(id), i});
      put(StateEntry{states[i].key, states[i].value_sum, states[i].started - (back == states_.end() ? 0 : back->second), 0});
    }
    return out_;
  }

 private:
  struct TakeBack {
    NodeId cell;
    std::uint32_t count;
    bool is_header;
  };

  /// A block's cells, and the columns of its nodes, where they lie within the page.
  void copy(NodeId block) {
    const NodeId end = std::min(block + 1 + f_.header(block).width, end_);
    if (end <= first_) return;
    const NodeId from = std::max(block, first_), node = std::max(block + 1, first_);
    std::memcpy(out_.data() + (from - first_) * sizeof(Cell), f_.cells_ + from, (end - from) * sizeof(Cell));
    if (node >= end) return;
    std::size_t at = (end_ - first_) * sizeof(Cell);
    for (const Forest::Column& column : columns_) {
      std::memcpy(out_.data() + at + (node - first_) * column.size, column.memory->as<char>() + node * column.size,
                  (end - node) * column.size);
      at += (end_ - first_) * column.size;
    }
  }

  void cancel() {
    auto next = std::lower_bound(takes_back_.begin(), takes_back_.end(), first_,
                                 [](const TakeBack& take, NodeId cell) { return take.cell < cell; });
    for (; next != takes_back_.end() && next->cell < end_; ++next) {
      Cell cell;
      char* const at = out_.data() + (next->cell - first_) * sizeof(Cell);
      std::memcpy(&cell, at, sizeof(Cell));
      if (next->is_header) {
        cell.header.here -= next->count;
      } else {
        cell.slot.started -= next->count;
        if (link::is_leaf(cell.slot.link)) cell.slot.link &= ~link::kPending;
      }
      std::memcpy(at, &cell, sizeof(Cell));
    }
  }

  const Forest& f_;
  NodeId cells_, first_ = 0, end_ = 0;
  std::vector<Forest::Column> columns_;
  std::vector<TakeBack> takes_back_;
  std::map<std::pair<TreeId, std::uint32_t>, std::uint32_t> states_;  // in flight through them
  std::string out_;
};

Journal::Plan Journal::plan(const Forest& forest, bool may_append) const {
  Plan plan;
  for (const Forest::Tree& tree : forest.trees_) {
    if (tree.root == kNoNode) continue;
    for (std::uint32_t chunk = tree.chunks; chunk != kNoNode; chunk = forest.header(chunk).parent) {
      const std::uint32_t end = chunk == tree.chunks ? tree.bump : chunk + (1u << forest.header(chunk).here);
      plan.cells = std::max(plan.cells, end);
      for (std::uint32_t page = chunk / kPageCells; page <= (end - 1) / kPageCells; ++page) plan.pages.push_back(page);
    }
  }
  std::sort(plan.pages.begin(), plan.pages.end());
  plan.pages.erase(std::unique(plan.pages.begin(), plan.pages.end()), plan.pages.end());

  Pages pages(forest, plan.cells);
  std::uint64_t everything = sizeof(Settings) + sizeof(Contents), changes = sizeof(Contents);
  may_append = may_append && records_ > 0 && columns_ == forest.columns_there();
  auto mark = pages_.begin();
  for (std::uint32_t row = 0; row < plan.pages.size(); ++row) {
    const std::uint32_t page = plan.pages[row];
    const std::uint64_t bytes = sizeof(Tag) + pages.bytes_of(page);
    everything += bytes;
    if (!may_append) continue;
    while (mark != pages_.end() && mark->page < page) ++mark;
    if (mark != pages_.end() && mark->page == page && mark->hash == hash_of(pages.page(page))) continue;
    plan.page_rows.push_back(row);
    changes += bytes;
  }
  for (std::uint32_t tree = 0; tree < forest.trees_.size(); ++tree) {
    const auto entry = pages.entry(tree);
    everything += sizeof(Tag) + entry.size();
    if (!may_append || (tree < trees_.size() && trees_[tree] == hash_of(entry))) continue;
    plan.trees.push_back(tree);
    changes += sizeof(Tag) + entry.size();
  }
  constexpr std::uint64_t kAround = sizeof(RecordHead) + sizeof(std::uint64_t);
  plan.is_whole = !may_append || size_ + kAround + changes > 2 * (kAround + everything);
  plan.is_empty = !plan.is_whole && plan.page_rows.empty() && plan.trees.empty();
  plan.length = plan.is_whole ? everything : changes;
  if (!plan.is_whole) return plan;
  plan.page_rows.resize(plan.pages.size()), plan.trees.resize(forest.trees_.size());
  for (std::uint32_t row = 0; row < plan.page_rows.size(); ++row) plan.page_rows[row] = row;
  for (std::uint32_t tree = 0; tree < plan.trees.size(); ++tree) plan.trees[tree] = tree;
  return plan;
}

void Journal::write(const Forest& forest, const Plan& plan, const Sink& sink) {
  Journal now;
  if (!plan.is_whole) now.size_ = size_, now.seal_ = seal_, now.records_ = records_, now.trees_ = trees_;
  now.columns_ = forest.columns_there();
  RecordHead head;
  head.number = now.records_++, head.length = plan.length, head.before = now.seal_;
  head.checksum = head.sum();
  sink({reinterpret_cast<const char*>(&head), sizeof(head)});
  Stream out(sink, head.checksum);
  if (plan.is_whole) out.put(settings_of(forest));
  Contents contents;
  contents.trees = static_cast<std::uint32_t>(forest.trees_.size()), contents.cells = plan.cells;
  contents.entries = static_cast<std::uint32_t>(plan.trees.size());
  contents.pages = static_cast<std::uint32_t>(plan.page_rows.size());
  out.put(contents);

  Pages pages(forest, plan.cells);
  now.trees_.resize(forest.trees_.size());
  for (const std::uint32_t tree : plan.trees) {
    const auto entry = pages.entry(tree);
    out.put(Tag{tree, static_cast<std::uint32_t>(entry.size())});
    out.put(entry);
    now.trees_[tree] = hash_of(entry);
  }
  now.pages_.reserve(plan.pages.size());
  auto mark = pages_.begin();
  auto row = plan.page_rows.begin();
  for (std::uint32_t i = 0; i < plan.pages.size(); ++i) {
    const std::uint32_t page = plan.pages[i];
    if (row == plan.page_rows.end() || *row != i) {
      while (mark->page < page) ++mark;
      now.pages_.push_back(*mark);
      continue;
    }
    ++row;
    const auto content = pages.page(page);
    out.put(Tag{page, 0});
    out.put(content);
    now.pages_.push_back({page, hash_of(content)});
  }
  now.seal_ = out.seal();
  now.size_ += sizeof(RecordHead) + plan.length + sizeof(std::uint64_t);
  *this = std::move(now);
}

Settings Journal::settings_of(const Forest& forest) {
  const ForestConfig& c = forest.config_;
  Settings s;
  s.selection = static_cast<std::uint8_t>(c.selection), s.unvisited = static_cast<std::uint8_t>(c.unvisited);
  s.exhaust = c.exhaust, s.backup = static_cast<std::uint8_t>(c.backup);
  s.columns = static_cast<std::uint8_t>(forest.columns_there());
  s.num_simulations = c.num_simulations, s.max_considered = c.max_considered;
  s.c_exp = c.c_exp, s.discount = c.discount, s.alpha = c.alpha, s.gumbel_scale = c.gumbel_scale;
  s.seed = c.seed, s.max_bytes = c.max_bytes;
  s.transpositions = c.transpositions;
  if (forest.successes_) s.success_at = c.success_at;
  return s;
}

std::string Forest::to_bytes() const {
  Journal journal;
  std::string bytes;
  const Journal::Plan plan = journal.plan(*this, false);
  bytes.reserve(plan.length + 64);
  journal.write(*this, plan, [&](std::span<const char> part) { bytes.append(part.data(), part.size()); });
  return bytes;
}

}  // namespace agentq
