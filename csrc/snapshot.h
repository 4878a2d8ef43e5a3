// What a saved forest looks like: a journal of records. Owns the layout; journal.cc writes it, snapshot.cc reads it,
// validate.cc proves what was read. Little-endian; every part is a multiple of eight bytes.
//
//     record   "AGQFORST" | version u32 | number u32, 0 for the first | bytes of the payload u64
//              | seal of the record before u64, 0 for the first | checksum of all that u64
//              | payload | seal u64: checksum of the payload, which starts from the header's
//     payload  Settings, in the first record alone | Contents | entries of trees | pages
//     entry    tree u32 | bytes u32 | TreeEntry | its chunks, the last first, each Chunk | its states, each StateEntry
//              (dropped: root and a zero)
//     page     number u32 | zero u32 | 256 cells (of the forest's last page, those there are) | the same of each column
//
// The first record holds every tree and every page that a tree uses, a later one those that have changed; numbers go up
// within a record. Cells are as they lie in memory, with everything in flight cancelled; what is neither a node nor a
// header is zero, chunk heads too, for the entries say where chunks lie.
//
// The first eight bytes of a record that goes behind others are written last, when the rest has reached the disk, and are
// zeros before. A file whose last record is cut off, or begins with eight zeros, is the forest as it was saved before;
// whatever else is not as written is refused.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "csrc/cells.h"

namespace agentq {

static_assert(std::endian::native == std::endian::little, "snapshots are little-endian");

inline constexpr std::array<char, 8> kSnapshotMagic = {'A', 'G', 'Q', 'F', 'O', 'R', 'S', 'T'};
inline constexpr std::uint32_t kSnapshotVersion = 3;
inline constexpr std::uint32_t kPageCells = 256;

/// Four lanes over words of eight bytes, the last filled up with zeros; a step is one to one in the word and in the lane.
class Checksum {
 public:
  explicit Checksum(std::uint64_t start = 0) : lanes_{start, start + 1, start + 2, start + 3} {}

  /// Of all but the last piece the size must be a multiple of 32.
  Checksum& add(std::span<const char> bytes) {
    std::size_t at = 0;
    for (; at + 32 <= bytes.size(); at += 32)
      for (std::size_t lane = 0; lane < 4; ++lane) step(lane, bytes.data() + at + 8 * lane, 8);
    for (std::size_t lane = 0; at < bytes.size(); at += 8, ++lane)
      step(lane, bytes.data() + at, bytes.size() - at < 8 ? bytes.size() - at : 8);
    return *this;
  }
  std::uint64_t value() const {
    std::uint64_t all = 0;
    for (const std::uint64_t lane : lanes_) all = stirred(all ^ lane);
    return all;
  }

 private:
  static std::uint64_t stirred(std::uint64_t x) {
    x *= 0x9E3779B97F4A7C15u;
    return x ^ x >> 32;
  }
  void step(std::size_t lane, const char* from, std::size_t size) {
    std::uint64_t word = 0;
    std::memcpy(&word, from, size);
    lanes_[lane] = stirred(lanes_[lane] ^ word);
  }
  std::uint64_t lanes_[4];
};

/// By which a journal knows a page or an entry again.
inline std::uint64_t hash_of(std::span<const char> bytes) { return Checksum(bytes.size()).add(bytes).value(); }

struct RecordHead {
  std::array<char, 8> magic = kSnapshotMagic;
  std::uint32_t version = kSnapshotVersion, number = 0;
  std::uint64_t length = 0, before = 0, checksum = 0;

  std::uint64_t sum() const {
    return Checksum().add({reinterpret_cast<const char*>(this), sizeof(RecordHead) - sizeof(checksum)}).value();
  }
};

struct Settings {
  std::uint8_t selection = 0, unvisited = 0, exhaust = 0, backup = 0;
  std::uint8_t columns = 0;  // a bit each: see Forest::columns
  std::uint8_t transpositions = 0;
  std::uint8_t zero[2] = {};
  std::uint32_t num_simulations = 0, max_considered = 0;
  double c_exp = 0, discount = 0, alpha = 0, gumbel_scale = 0, success_at = 0;
  std::uint64_t seed = 0, max_bytes = 0;
};

struct Contents {
  std::uint32_t trees = 0;    // ever planted
  std::uint32_t cells = 0;    // up to the last that is used
  std::uint32_t entries = 0, pages = 0;
};

struct TreeEntry {
  std::uint32_t root;       // kNoNode: dropped, and nothing else counts
  std::uint32_t used;       // cells of its last chunk
  std::uint32_t next_size;  // of its next chunk, log2 of cells
  std::uint32_t reroots, base;
  std::uint32_t chunks, states, zero;
};

struct Chunk {
  std::uint32_t cell, log2;
};

struct StateEntry {
  std::uint64_t key;
  double value_sum;
  std::uint32_t started, zero;
};

/// Two words that a payload's entries and pages begin with.
struct Tag {
  std::uint32_t number, bytes;
};

static_assert(sizeof(RecordHead) == 40 && sizeof(Settings) == 72 && sizeof(Contents) == 16 && sizeof(TreeEntry) == 32);
static_assert(std::is_trivially_copyable_v<Cell>);

/// Cells of a page of a forest that has so many.
inline constexpr std::uint32_t cells_of_page(std::uint32_t page, std::uint32_t cells) noexcept {
  const std::uint32_t left = cells - page * kPageCells;
  return left < kPageCells ? left : kPageCells;
}

[[noreturn]] void damaged(const std::string& why);

}  // namespace agentq
