// What a file knows of a forest: saving writes what changed since, or everything. Owns hashes of pages and trees, no file.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "csrc/forest.h"

namespace agentq {

struct Settings;

class Journal {
 public:
  using Sink = std::function<void(std::span<const char>)>;

  /// What the next record holds; good until the forest changes.
  struct Plan {
    bool is_whole = true;      // else it goes behind the records there are
    bool is_empty = false;     // nothing has changed: there is no need to write it
    std::uint64_t length = 0;  // bytes of its payload
    std::uint32_t cells = 0;
    std::vector<std::uint32_t> pages;       // all that trees use
    std::vector<std::uint32_t> page_rows;   // of `pages`: those to write
    std::vector<std::uint32_t> trees;       // those to write
  };

  /// What changed since the last record; everything if `may_append` is not set, if there is no record yet, if a column has
  /// been added, or if the journal would become more than twice as long as everything is.
  Plan plan(const Forest& forest, bool may_append) const;

  /// Writes the record. If `sink` throws, nothing has changed.
  void write(const Forest& forest, const Plan& plan, const Sink& sink);

  /// The forest that records make; this journal goes on behind them. A last record that is cut off is left out.
  /// @throws std::invalid_argument if the bytes are no snapshot, are damaged, or were written by another version.
  Forest read(std::span<const char> bytes);

  std::uint64_t size() const noexcept { return size_; }  // bytes of all records
  std::uint64_t seal() const noexcept { return seal_; }  // the last eight of them

 private:
  friend class SnapshotReader;
  class Pages;
  static Settings settings_of(const Forest& forest);

  struct Mark {
    std::uint32_t page;
    std::uint64_t hash;
  };

  std::uint64_t size_ = 0, seal_ = 0;
  std::uint32_t records_ = 0, columns_ = 0;
  std::vector<Mark> pages_;           // by page
  std::vector<std::uint64_t> trees_;  // hashes of entries
};

}  // namespace agentq
