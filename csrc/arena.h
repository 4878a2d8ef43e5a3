// Address space that is reserved at once and never moves; the system supplies a page on its first write. Knows nothing
// of what the memory holds.
#pragma once

#include <cstddef>
#include <memory>
#include <stdexcept>

namespace agentq {

/// An allocation would exceed `max_bytes`, or the system has no such address space.
class ByteLimit : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A reserved range. Reference-counted: a NumPy view keeps the memory alive.
class Reserve {
 public:
  /// A range of at least `bytes`, with arbitrary content: ranges are reused while their first pages are still mapped.
  /// @throws ByteLimit if the system has no such range.
  static std::shared_ptr<Reserve> make(std::size_t bytes);
  /// The same, filled with zeros.
  static std::shared_ptr<Reserve> make_zeroed(std::size_t bytes);

  Reserve(const Reserve&) = delete;
  Reserve& operator=(const Reserve&) = delete;
  ~Reserve();

  template <typename T>
  T* as() const noexcept {
    return static_cast<T*>(data_);
  }
  std::size_t size() const noexcept { return size_; }

  /// Gives whole pages within [offset, offset + bytes) back to the system.
  void give_back(std::size_t offset, std::size_t bytes) const noexcept;
  /// Lets the system take whole pages whenever it needs memory; until then they stay mapped.
  void lend(std::size_t offset, std::size_t bytes) const noexcept;

 private:
  explicit Reserve(std::size_t size);

  void* data_;
  std::size_t size_;
};

}  // namespace agentq
