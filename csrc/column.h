// One growable array that can be shared read-only without copying. Owns its memory and nothing of what it means.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>

namespace agentq {

/// A vector whose buffer outlives its growth for whoever holds `share()`: a holder never dangles, it goes stale.
template <typename T>
class Column {
 public:
  using value_type = T;

  Column() = default;
  Column(Column&&) noexcept = default;
  Column& operator=(Column&&) noexcept = default;
  Column(const Column&) = delete;
  Column& operator=(const Column&) = delete;

  T& operator[](std::size_t i) noexcept { return data_[i]; }
  const T& operator[](std::size_t i) const noexcept { return data_[i]; }
  const T* data() const noexcept { return data_; }
  T* data() noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

  /// Makes room for `size` entries; changes nothing if it throws.
  void reserve(std::size_t size) {
    if (size <= capacity_) return;
    const std::size_t capacity = std::max({size, 2 * capacity_, std::size_t{64}});
    std::shared_ptr<T[]> grown(new T[capacity]);
    std::copy_n(data_, size_, grown.get());
    buffer_ = std::move(grown);
    data_ = buffer_.get();
    capacity_ = capacity;
  }

  /// Appends `count` times `value`; the room must have been reserved.
  void append(std::size_t count, T value) noexcept {
    std::fill_n(data_ + size_, count, value);
    size_ += count;
  }

  /// The buffer as it is now, kept alive: it sees later writes until the column outgrows it.
  std::shared_ptr<const T[]> share() const noexcept { return buffer_; }

 private:
  std::shared_ptr<T[]> buffer_;
  T* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace agentq
