// A forest as bytes and back. Little-endian:
//
//     "AGQFORST" | version u32 | settings | trees u64
//     | each tree: root u32 (kNoNode: dropped, and that is all), cells used of its last chunk u32, next chunk's size u32,
//       chunks u32, then cell u32 and log2 u32 of each
//       | each block, parents first: cell u32, width u32, rollouts at the parent u32, and a child each:
//         W f64, N u32, flags u32 | where there are critic values, log-probabilities, priors: f32 a child each,
//         then squared returns: f64 a child
//     | checksum u64 of all before it
//
// No pointer but the cells of chunks and blocks is written; each is checked against the others when it is read.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "csrc/forest.h"

namespace agentq {
namespace {

static_assert(std::endian::native == std::endian::little, "snapshots are little-endian");

constexpr std::array<char, 8> kMagic = {'A', 'G', 'Q', 'F', 'O', 'R', 'S', 'T'};
constexpr std::uint32_t kVersion = 2;
constexpr std::uint32_t kInner = 4;  // beside Flag: the node has children

struct Preamble {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint8_t selection = 0, unvisited = 0, exhaust = 0, backup = 0;
  double c_exp = 0, discount = 0, alpha = 0;
  std::uint64_t max_bytes = 0;
  std::uint8_t critic = 0, logp = 0, prior = 0, squares = 0, zero[4] = {};
  std::uint64_t trees = 0;
};
static_assert(sizeof(Preamble) == 64 && std::is_trivially_copyable_v<Preamble>);

[[noreturn]] void damaged(const std::string& why) {
  throw std::invalid_argument("a forest snapshot must be whole; this one is damaged: " + why);
}

class Writer {
 public:
  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  std::string bytes;
};

class Reader {
 public:
  explicit Reader(std::span<const char> bytes) : left_(bytes) {}

  template <typename T>
  T get() {
    if (left_.size() < sizeof(T)) damaged("it ends too early");
    T value;
    std::memcpy(&value, left_.data(), sizeof(T));
    left_ = left_.subspan(sizeof(T));
    return value;
  }
  bool empty() const { return left_.empty(); }

 private:
  std::span<const char> left_;
};

Preamble read_preamble(std::span<const char> bytes) {
  if (bytes.size() < kMagic.size() || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    throw std::invalid_argument("a forest snapshot must start with AGQFORST; this is another kind of file");
  if (bytes.size() < sizeof(Preamble) + sizeof(std::uint64_t)) damaged(std::to_string(bytes.size()) + " bytes only");
  Preamble p;
  std::memcpy(&p, bytes.data(), sizeof(Preamble));
  if (p.version != kVersion)
    throw std::invalid_argument("the version of a forest snapshot must be " + std::to_string(kVersion) + "; got " +
                                std::to_string(p.version) + ", written by " +
                                (p.version > kVersion ? "a newer" : "an older") + " agentq");
  const std::size_t body = bytes.size() - sizeof(std::uint64_t);
  std::uint64_t sum = 0;
  std::memcpy(&sum, bytes.data() + body, sizeof(sum));
  if (sum != snapshot_checksum(bytes.first(body))) damaged("its checksum does not match");
  if (p.selection > 3 || p.unvisited > 1 || p.exhaust > 1 || p.backup > 1 || p.critic > 1 || p.logp > 1 ||
      p.prior > 1 || p.squares > 1 || p.trees > static_cast<std::uint64_t>(std::numeric_limits<TreeId>::max()))
    damaged("its settings are unknown");
  return p;
}

}  // namespace

std::uint64_t snapshot_checksum(std::span<const char> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<std::size_t>(8, bytes.size() - at));
    hash = (hash ^ word) * 0x100000001b3u;
    hash ^= hash >> 32;
  }
  return hash;
}

std::string Forest::to_bytes() const {
  const Counts counts = in_flight();
  const Counts at_node = waiting();
  Preamble p;
  p.selection = static_cast<std::uint8_t>(config_.selection);
  p.unvisited = static_cast<std::uint8_t>(config_.unvisited);
  p.exhaust = config_.exhaust;
  p.backup = static_cast<std::uint8_t>(config_.backup);
  p.c_exp = config_.c_exp, p.discount = config_.discount, p.alpha = config_.alpha, p.max_bytes = config_.max_bytes;
  p.critic = bool{critic_}, p.logp = bool{logp_}, p.prior = bool{prior_};
  p.squares = config_.squares;
  p.trees = trees_.size();
  Writer out;
  out.put(p);
  const auto put_block = [&](NodeId block) {
    const Header& head = header(block);
    out.put(block), out.put(std::uint32_t{head.width});
    out.put(head.parent == kNoNode ? 0 : head.here - count_of(at_node, head.parent));
    for (NodeId node = block + 1; node <= block + head.width; ++node) {
      const Slot& s = slot(node);
      std::uint32_t flags = link::is_exhausted(s.link) ? kExhausted : 0;
      flags |= !link::is_leaf(s.link) ? kInner : (s.link & link::kTerminal) != 0 ? kTerminal : 0;
      out.put(s.value_sum), out.put(s.started - count_of(counts, node)), out.put(flags);
    }
    for (const auto& column : {critic_, logp_, prior_})
      for (NodeId node = block + 1; column && node <= block + head.width; ++node) out.put(at(column, node));
    for (NodeId node = block + 1; squares_ && node <= block + head.width; ++node) out.put(squares_->as<double>()[node]);
  };
  for (const Tree& tree : trees_) {
    out.put(tree.root);
    if (tree.root == kNoNode) continue;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> chunks;
    for (std::uint32_t chunk = tree.chunks; chunk != kNoNode; chunk = header(chunk).parent)
      chunks.emplace_back(chunk, header(chunk).here);
    out.put(tree.bump - tree.chunks), out.put(tree.next_size), out.put(static_cast<std::uint32_t>(chunks.size()));
    for (const auto& [chunk, log2] : chunks) out.put(chunk), out.put(log2);
    put_block(block_of(tree.root));
    for (const NodeId node : below(tree.root))
      if (!link::is_leaf(slot(node).link)) put_block(link::block(slot(node).link));
  }
  out.put(snapshot_checksum(out.bytes));
  return std::move(out.bytes);
}

/// Builds a forest from a snapshot, refusing whatever no sequence of calls can have made.
class SnapshotReader {
 public:
  explicit SnapshotReader(std::span<const char> bytes)
      : preamble_(read_preamble(bytes)),
        in_(bytes.subspan(sizeof(Preamble), bytes.size() - sizeof(Preamble) - sizeof(std::uint64_t))),
        forest_(config_of(preamble_)) {}

  Forest read() {
    Forest& f = forest_;
    if (preamble_.critic) f.materialise(f.critic_);
    if (preamble_.logp) f.materialise(f.logp_);
    if (preamble_.prior) f.materialise(f.prior_);
    for (std::uint64_t i = 0; i < preamble_.trees; ++i) {
      const auto root = in_.get<NodeId>();
      f.trees_.emplace_back();
      if (root == kNoNode) continue;
      read_tree(f.trees_.back(), root);
      f.header(root - 1).here = static_cast<std::uint32_t>(i);
    }
    if (!in_.empty()) damaged("it goes on after its end");
    free_gaps();
    if (f.is_best_first()) {
      f.open_.resize(f.trees_.size());
      for (const TreeId tree : f.trees()) f.offer_all(tree);
    }
    return std::move(forest_);
  }

 private:
  static ForestConfig config_of(const Preamble& p) {
    ForestConfig config;
    config.selection = static_cast<Selection>(p.selection);
    config.unvisited = static_cast<Unvisited>(p.unvisited);
    config.exhaust = p.exhaust != 0;
    config.backup = static_cast<Backup>(p.backup);
    config.squares = p.squares != 0;
    config.c_exp = p.c_exp, config.discount = p.discount, config.alpha = p.alpha, config.max_bytes = p.max_bytes;
    return config;
  }

  struct Chunk {
    std::uint32_t cell, log2;
    std::uint64_t end() const { return std::uint64_t{cell} + (std::uint64_t{1} << log2); }
  };
  struct Block {
    std::uint32_t cell, width;
    std::uint64_t end() const { return std::uint64_t{cell} + ((width + 2) & ~1u); }
  };
  static constexpr auto before = [](const auto& a, const auto& b) { return a.cell < b.cell; };

  void read_tree(Forest::Tree& tree, NodeId root) {
    Forest& f = forest_;
    const auto used = in_.get<std::uint32_t>();
    tree.next_size = in_.get<std::uint32_t>();
    const auto count = in_.get<std::uint32_t>();
    if (count < 1 || tree.next_size < Forest::kFirstChunk || tree.next_size > Forest::kLargestChunk)
      damaged("the memory of a tree cannot be");
    std::vector<Chunk> chunks;
    for (std::uint32_t i = 0; i < count; ++i) {
      Chunk chunk;
      chunk.cell = in_.get<std::uint32_t>(), chunk.log2 = in_.get<std::uint32_t>();
      if (chunk.log2 < Forest::kFirstChunk || chunk.log2 > 17 || chunk.cell % 32 != 0 ||
          chunk.end() * sizeof(Cell) > preamble_.max_bytes)
        damaged("the memory of a tree cannot be");
      chunks.push_back(chunk);
    }
    if (used < 2 || used > (1u << chunks[0].log2)) damaged("the memory of a tree cannot be");
    tree.chunks = chunks[0].cell;
    tree.bump = chunks[0].cell + used;
    tree.end = static_cast<std::uint32_t>(chunks[0].end());
    for (const Chunk& chunk : chunks) {
      taken_.push_back(chunk);
      f.top_ = std::max(f.top_, static_cast<std::uint32_t>(chunk.end()));
      f.used_cells_ += std::uint64_t{1} << chunk.log2;
    }
    if (f.used_cells_ * f.bytes_per_cell() > preamble_.max_bytes) damaged("it holds more than its byte limit");
    for (std::uint32_t i = 0; i < count; ++i)  // as written: the last first
      f.header(chunks[i].cell) = {i + 1 < count ? chunks[i + 1].cell : kNoNode, chunks[i].log2, 0, 0, 0};
    std::sort(chunks.begin(), chunks.end(), before);

    std::vector<Block> blocks;
    std::vector<NodeId> inner;  // those whose block follows, in order
    read_block(kNoNode, chunks, blocks, inner);
    if (blocks[0].width != 1 || blocks[0].cell + 1 != root) damaged("a root lies where none can");
    for (std::size_t i = 0; i < inner.size(); ++i) read_block(inner[i], chunks, blocks, inner);
    std::sort(blocks.begin(), blocks.end(), before);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (i + 1 < blocks.size() && blocks[i].end() > blocks[i + 1].cell) damaged("two nodes lie in one place");
      if (blocks[i].cell >= tree.chunks && blocks[i].cell < tree.end && blocks[i].end() > tree.bump)
        damaged("a node lies where none can");
      tree.nodes += blocks[i].width;
    }
    for (const NodeId node : inner)  // now no cell is another's
      if (f.config_.exhaust && f.all_exhausted(link::block(f.slot(node).link)) != link::is_exhausted(f.slot(node).link))
        damaged("a node has flags that cannot be");
    tree.root = root;
    ++f.num_trees_;
  }

  void read_block(NodeId parent, const std::vector<Chunk>& chunks, std::vector<Block>& blocks,
                  std::vector<NodeId>& inner) {
    Forest& f = forest_;
    const auto block = in_.get<NodeId>();
    const auto width = in_.get<std::uint32_t>(), here = in_.get<std::uint32_t>();
    const auto after = std::upper_bound(chunks.begin(), chunks.end(), block,
                                        [](NodeId cell, const Chunk& chunk) { return cell < chunk.cell; });
    if (width < 1 || width > kMaxWidth || block % 2 != 0 || after == chunks.begin() || block < (after - 1)->cell + 2 ||
        Block{block, width}.end() > (after - 1)->end())
      damaged("a node lies where none can");
    std::uint32_t index = 0;
    if (parent != kNoNode) {
      Slot& above = f.slot(parent);
      index = above.link & link::kIndex;
      above.link = block >> 1 | (above.link & link::kExhausted);
    }
    blocks.push_back({block, width});
    f.lay_block(block, parent, index, width, here);
    std::uint64_t through = here;
    for (NodeId node = block + 1; node <= block + width; ++node) {
      Slot& s = f.slot(node);
      s.value_sum = in_.get<double>();
      s.started = in_.get<std::uint32_t>();
      const auto flags = in_.get<std::uint32_t>();
      through += s.started;
      const bool nothing = f.config_.backup == Backup::kMax && s.value_sum == -std::numeric_limits<double>::infinity();
      if (!(std::isfinite(s.value_sum) || nothing)) damaged("a value is not finite");
      if (flags > 7 || ((flags & kTerminal) != 0 && (flags & kInner) != 0) ||
          ((flags & kExhausted) != 0 && (!f.config_.exhaust || (flags & (kTerminal | kInner)) == 0)))
        damaged("a node has flags that cannot be");
      if ((flags & kTerminal) != 0) s.link |= link::kTerminal;
      if ((flags & kExhausted) != 0) s.link |= link::kExhausted;
      if ((flags & kInner) != 0) inner.push_back(node);
    }
    if (parent != kNoNode && through != f.slot(parent).started) damaged("the visits of a node and its children differ");
    for (const auto& column : {f.critic_, f.logp_, f.prior_})
      for (NodeId node = block + 1; column && node <= block + width; ++node)
        if (!std::isfinite(column->as<float>()[node] = in_.get<float>()) && column != f.logp_)
          damaged("a value is not finite");
    for (NodeId node = block + 1; f.squares_ && node <= block + width; ++node)
      f.squares_->as<double>()[node] = in_.get<double>();
  }

  /// What lies between the chunks is free.
  void free_gaps() {
    Forest& f = forest_;
    std::sort(taken_.begin(), taken_.end(), before);
    std::uint64_t at = 0;
    for (const Chunk& chunk : taken_) {
      if (chunk.cell < at) damaged("two trees lie in one place");
      while (at < chunk.cell) {
        const auto log2 = std::min<std::uint32_t>(Forest::kLargestChunk,
                                                  static_cast<std::uint32_t>(std::bit_width(chunk.cell - at)) - 1);
        f.header(static_cast<NodeId>(at)) = {f.free_chunk_[log2], log2, 0, 0, 0};
        f.free_chunk_[log2] = static_cast<std::uint32_t>(at);
        at += std::uint64_t{1} << log2;
      }
      at = chunk.end();
    }
  }

  Preamble preamble_;
  Reader in_;
  Forest forest_;
  std::vector<Chunk> taken_;
};

Forest Forest::from_bytes(std::span<const char> bytes) { return SnapshotReader(bytes).read(); }

}  // namespace agentq
