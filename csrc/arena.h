// Address space that is reserved at once and never moves: pages come when they are first written. Owns memory, not what
// it means.
#pragma once

#include <cstddef>
#include <memory>
#include <stdexcept>

namespace agentq {

/// Memory that may not be had: what would pass `max_bytes`, or the address space.
class ByteLimit : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A reserved range. Shared, so that whoever looks into it (a NumPy view) outlives nothing.
class Reserve {
 public:
  /// At least `bytes`, of any content: ranges are used again, their first pages still warm.
  /// @throws ByteLimit if the system has no such range.
  static std::shared_ptr<Reserve> make(std::size_t bytes);
  /// The same, of zeros.
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

 private:
  explicit Reserve(std::size_t size);

  void* data_;
  std::size_t size_;
};

}  // namespace agentq
