// Reading: records to cells and a table of trees, which validate.cc then proves. snapshot.h says what they look like.
#include "csrc/snapshot.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "csrc/journal.h"
#include "csrc/validate.h"

namespace agentq {
namespace {

class Parts {
 public:
  explicit Parts(std::span<const char> bytes) : left_(bytes) {}

  std::span<const char> take(std::uint64_t size) {
    if (left_.size() < size) damaged("a part ends too early");
    const auto part = left_.first(size);
    left_ = left_.subspan(size);
    return part;
  }
  template <typename T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::span<const char> left() const { return left_; }

 private:
  std::span<const char> left_;
};

std::uint64_t word_at(std::span<const char> bytes, std::size_t at) {
  std::uint64_t word;
  std::memcpy(&word, bytes.data() + at, sizeof(word));
  return word;
}

ForestConfig config_of(const Settings& s) {
  if (s.selection > 6 || s.unvisited > 1 || s.exhaust > 1 || s.backup > 1 || s.transpositions > 1)
    damaged("its settings are unknown");
  ForestConfig config;
  config.selection = static_cast<Selection>(s.selection);
  config.unvisited = static_cast<Unvisited>(s.unvisited);
  config.exhaust = s.exhaust != 0;
  config.backup = static_cast<Backup>(s.backup);
  config.squares = (s.columns & 8) != 0;
  if ((s.columns & 16) != 0) config.success_at = s.success_at;
  config.transpositions = s.transpositions != 0;
  config.num_simulations = s.num_simulations, config.max_considered = s.max_considered;
  config.c_exp = s.c_exp, config.discount = s.discount, config.alpha = s.alpha, config.gumbel_scale = s.gumbel_scale;
  config.seed = s.seed, config.max_bytes = s.max_bytes;
  return config;
}

Forest empty_forest(const ForestConfig& config) {
  try {
    return Forest(config);
  } catch (const std::invalid_argument& error) {
    damaged(error.what());
  }
}

}  // namespace

void damaged(const std::string& why) {
  throw std::invalid_argument("a forest snapshot must be whole; this one is damaged: " + why);
}

/// Every record is checked as a whole; of a page or a tree that several hold the last counts.
class SnapshotReader {
 public:
  SnapshotReader(std::span<const char> bytes, Journal& journal) : journal_(journal), forest_(first(bytes)) {
    while (record(bytes.subspan(journal_.size_))) {
    }
  }

  Forest read() {
    place_trees();
    place_pages();
    for (std::size_t tree = 0; tree < bodies_.size(); ++tree) list_chunks(forest_.trees_[tree], bodies_[tree]);
    Validator(forest_, used_).run();
    free_gaps();
    if (forest_.is_best_first()) {
      forest_.open_.resize(forest_.trees_.size());
      for (const TreeId tree : forest_.trees()) forest_.offer_all(tree);
    }
    return std::move(forest_);
  }

 private:
  struct Page {
    std::uint32_t number, cells;
    std::span<const char> content;
  };

  /// An empty forest of the settings in the first record.
  Forest first(std::span<const char> bytes) {
    if (bytes.size() < kSnapshotMagic.size() || std::memcmp(bytes.data(), kSnapshotMagic.data(), 8) != 0)
      throw std::invalid_argument("a forest snapshot must start with AGQFORST; this is another kind of file");
    if (bytes.size() < sizeof(RecordHead)) damaged(std::to_string(bytes.size()) + " bytes only");
    const RecordHead head = head_of(bytes);
    if (bytes.size() - sizeof(RecordHead) < sizeof(std::uint64_t) ||
        bytes.size() - sizeof(RecordHead) - sizeof(std::uint64_t) < head.length)
      damaged("its first record is cut off");
    const Settings settings = Parts(payload(bytes, head)).get<Settings>();
    Forest forest = empty_forest(config_of(settings));
    if ((settings.columns & 1) != 0) forest.materialise(forest.critic_);
    if ((settings.columns & 2) != 0) forest.materialise(forest.logp_);
    if ((settings.columns & 4) != 0) forest.materialise(forest.prior_);
    if ((settings.columns & 32) != 0) forest.make_states();
    journal_.columns_ = forest.columns_there();
    if (journal_.columns_ != settings.columns) damaged("its settings are unknown");
    return forest;
  }

  RecordHead head_of(std::span<const char> bytes) const {
    RecordHead head;
    std::memcpy(&head, bytes.data(), sizeof(head));
    if (head.version != kSnapshotVersion && head.magic == kSnapshotMagic)
      throw std::invalid_argument("the version of a forest snapshot must be " + std::to_string(kSnapshotVersion) +
                                  "; got " + std::to_string(head.version) + ", written by " +
                                  (head.version > kSnapshotVersion ? "a newer" : "an older") + " agentq");
    if (head.checksum != head.sum()) damaged("the checksum of record " + number() + " does not match");
    if (head.magic != kSnapshotMagic || head.number != journal_.records_ || head.before != journal_.seal_)
      damaged("record " + number() + " is not the next");
    return head;
  }

  std::span<const char> payload(std::span<const char> bytes, const RecordHead& head) const {
    const auto part = bytes.subspan(sizeof(RecordHead), head.length);
    if (Checksum(head.checksum).add(part).value() != word_at(bytes, sizeof(RecordHead) + head.length))
      damaged("the checksum of record " + number() + " does not match");
    return part;
  }

  std::string number() const { return std::to_string(journal_.records_); }

  /// A record whose first bytes, which are written last, are still zeros: the power was cut while it was written.
  bool is_unfinished(std::span<const char> bytes) const {
    const auto magic = bytes.first(std::min(bytes.size(), kSnapshotMagic.size()));
    if (magic.empty() || std::any_of(magic.begin(), magic.end(), [](char byte) { return byte != 0; })) return false;
    if (bytes.size() < sizeof(RecordHead)) return true;
    RecordHead head;
    std::memcpy(&head, bytes.data(), sizeof(head));
    head.magic = kSnapshotMagic;
    const std::size_t left = bytes.size() - sizeof(RecordHead);
    if (head.checksum == head.sum() && left > sizeof(std::uint64_t) && left - sizeof(std::uint64_t) > head.length)
      damaged("record " + number() + " is followed by another but has no beginning");
    return true;
  }

  /// The record that the bytes begin with; false if there is none, or not all of it.
  bool record(std::span<const char> bytes) {
    if (is_unfinished(bytes)) return false;
    if (bytes.size() < sizeof(RecordHead)) {
      if (std::memcmp(bytes.data(), kSnapshotMagic.data(), std::min(bytes.size(), kSnapshotMagic.size())) != 0)
        damaged("it goes on after its end");
      return false;
    }
    const RecordHead head = head_of(bytes);
    const std::size_t left = bytes.size() - sizeof(RecordHead);
    if (left < sizeof(std::uint64_t) || left - sizeof(std::uint64_t) < head.length) return false;
    Parts in(payload(bytes, head));
    if (journal_.records_ == 0) in.get<Settings>();
    const auto contents = in.get<Contents>();
    if (contents.cells > forest_.config_.max_bytes / sizeof(Cell)) damaged("it holds more than its byte limit");
    for (std::uint32_t i = 0; i < contents.entries; ++i) {
      const auto [tree, size] = in.get<Tag>();
      if (tree > bodies_.size()) damaged("trees are not in order");
      if (tree == bodies_.size()) bodies_.emplace_back();
      bodies_[tree] = in.take(size);
    }
    if (contents.trees != bodies_.size() || contents.trees > std::uint32_t{std::numeric_limits<TreeId>::max()})
      damaged("a tree is missing");
    std::size_t each = sizeof(Cell);
    for (const Forest::Column& column : forest_.columns()) each += column.memory ? column.size : 0;
    for (std::uint32_t i = 0; i < contents.pages; ++i) {
      const std::uint32_t page = in.get<Tag>().number;
      if (page > contents.cells / kPageCells) damaged("a page lies where none can");
      const std::uint32_t cells = cells_of_page(page, contents.cells);
      pages_.push_back({page, cells, in.take(each * cells)});
    }
    if (!in.left().empty()) damaged("record " + number() + " goes on after its end");
    ++journal_.records_;
    journal_.size_ += sizeof(RecordHead) + head.length + sizeof(std::uint64_t);
    journal_.seal_ = word_at(bytes, sizeof(RecordHead) + head.length);
    return true;
  }

  /// The table of trees, and where their chunks lie.
  void place_trees() {
    Forest& f = forest_;
    for (const auto& body : bodies_) {
      Parts in(body);
      journal_.trees_.push_back(hash_of(body));
      f.trees_.emplace_back();
      if (f.state_) f.states_.emplace_back();
      if (body.size() == sizeof(std::uint64_t) && in.get<std::uint64_t>() == kNoNode) continue;
      const auto entry = in.get<TreeEntry>();
      const std::uint64_t size = std::uint64_t{entry.chunks} * sizeof(Chunk) + std::uint64_t{entry.states} * sizeof(StateEntry);
      if (entry.root == kNoNode || entry.chunks < 1 || in.left().size() != size || (entry.states > 0 && !f.state_) ||
          entry.next_size < Forest::kFirstChunk || entry.next_size > Forest::kLargestChunk)
        damaged("the memory of a tree cannot be");
      Forest::Tree& tree = f.trees_.back();
      tree.root = entry.root, tree.next_size = entry.next_size, tree.reroots = entry.reroots, tree.base = entry.base;
      for (std::uint32_t i = 0; i < entry.chunks; ++i) {
        const auto chunk = in.get<Chunk>();
        const std::uint64_t size = std::uint64_t{1} << (chunk.log2 & 31);
        if (chunk.log2 < Forest::kFirstChunk || chunk.log2 > Validator::kLargest || chunk.cell % 32 != 0 ||
            (chunk.cell + size) * sizeof(Cell) > f.config_.max_bytes)
          damaged("the memory of a tree cannot be");
        const auto end = static_cast<std::uint32_t>(chunk.cell + size);
        if (i == 0) {
          if (entry.used < 2 || entry.used > size || entry.used % 2 != 0) damaged("the memory of a tree cannot be");
          tree.chunks = chunk.cell, tree.bump = chunk.cell + entry.used, tree.end = end;
        }
        used_.push_back({chunk.cell, i == 0 ? tree.bump : end, end, static_cast<TreeId>(f.trees_.size() - 1)});
        f.top_ = std::max(f.top_, end);
        f.used_cells_ += size;
      }
      read_states(in, entry.states);
      ++f.num_trees_;
    }
    if (f.bytes_in_use() > f.config_.max_bytes) damaged("it holds more than its byte limit");
    std::sort(used_.begin(), used_.end(), [](const auto& a, const auto& b) { return a.cell < b.cell; });
    for (std::size_t i = 1; i < used_.size(); ++i)
      if (used_[i].cell < used_[i - 1].end) damaged("two trees lie in one place");
  }

  void read_states(Parts& in, std::uint32_t count) {
    if (!forest_.state_) return;
    Forest::States& states = forest_.states_.back();
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto [key, value_sum, started, zero] = in.get<StateEntry>();
      if (states.find_or_add(key, value_sum) != i) damaged("a tree has a state twice");
      states.list[i].started = started;
    }
  }

  /// The last content of every page that a chunk needs.
  void place_pages() {
    std::stable_sort(pages_.begin(), pages_.end(), [](const Page& a, const Page& b) { return a.number < b.number; });
    auto at = pages_.begin();
    for (const UsedChunk& chunk : used_)
      for (std::uint32_t number = chunk.cell / kPageCells; number <= (chunk.used - 1) / kPageCells; ++number) {
        while (at != pages_.end() &&
               (at->number < number || (at + 1 != pages_.end() && at[1].number == at->number)))
          ++at;
        if (at == pages_.end() || at->number != number ||
            number * kPageCells + at->cells < std::min(chunk.used, (number + 1) * kPageCells))
          damaged("a page is missing");
        if (!journal_.pages_.empty() && journal_.pages_.back().page == number) continue;
        journal_.pages_.push_back({number, hash_of(at->content)});
        Parts in(at->content);
        const std::size_t first = std::size_t{number} * kPageCells;
        const auto fill = [&](const Reserve& memory, std::size_t size) {
          std::memcpy(memory.as<char>() + first * size, in.take(at->cells * size).data(), at->cells * size);
        };
        fill(*forest_.cell_memory_, sizeof(Cell));
        for (const Forest::Column& column : forest_.columns())
          if (column.memory) fill(*column.memory, column.size);
      }
  }

  void list_chunks(Forest::Tree& tree, std::span<const char> body) {
    if (tree.root == kNoNode) return;
    Parts in(body);
    NodeId* last = nullptr;
    for (std::uint32_t left = in.get<TreeEntry>().chunks; left > 0; --left) {
      const auto [cell, log2] = in.get<Chunk>();
      if (last != nullptr) *last = cell;
      forest_.header(cell) = {kNoNode, log2, 0, 0, 0};
      last = &forest_.header(cell).parent;
    }
  }

  /// What lies between the chunks is free.
  void free_gaps() {
    Forest& f = forest_;
    std::uint32_t at = 0;
    for (const UsedChunk& chunk : used_) {
      while (at < chunk.cell) {
        const auto log2 = std::min<std::uint32_t>(Forest::kLargestChunk,
                                                  static_cast<std::uint32_t>(std::bit_width(chunk.cell - at)) - 1);
        f.header(at) = {f.free_chunk_[log2], log2, 0, 0, 0};
        f.free_chunk_[log2] = at;
        at += 1u << log2;
      }
      at = chunk.end;
    }
  }

  Journal& journal_;
  Forest forest_;
  std::vector<std::span<const char>> bodies_;  // of entries, by tree
  std::vector<Page> pages_;
  std::vector<UsedChunk> used_;  // by cell
};

Forest Journal::read(std::span<const char> bytes) {
  Journal journal;
  Forest forest = SnapshotReader(bytes, journal).read();
  *this = std::move(journal);
  return forest;
}

Forest Forest::from_bytes(std::span<const char> bytes) { return Journal().read(bytes); }

}  // namespace agentq
