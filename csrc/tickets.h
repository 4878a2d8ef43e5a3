// Which rollout a ticket names. Owns the numbers that tickets are made of; no forest.
//
//     ticket   0 | number, 35 bits, never 0 | place in the forest's table of rollouts, 28 bits
//
// A forest accepts a ticket only where its own table holds that very number, so one lookup and one comparison refuse a
// ticket that was used up, one of another forest, and one of a forest that was destroyed. No number is given twice in a
// process before 2^35 have been given. Another process starts elsewhere at random, a child process too: a ticket of such a
// process is accepted with a probability of 2^-35.
#pragma once

#include <atomic>
#include <cstdint>

namespace agentq {

using Ticket = std::uint64_t;

namespace ticket {
inline constexpr unsigned kNumberBits = 35, kPlaceBits = 28;  // the sign bit stays 0: lists of tickets are int64 to NumPy
inline constexpr std::uint64_t kMost = std::uint64_t{1} << kPlaceBits;  // rollouts of a forest at once
inline constexpr Ticket kNone = 0;                                      // names no rollout
inline constexpr std::uint32_t place(Ticket ticket) noexcept { return static_cast<std::uint32_t>(ticket & (kMost - 1)); }
inline constexpr Ticket of(std::uint64_t number, std::uint32_t place) noexcept { return number << kPlaceBits | place; }
}  // namespace ticket

/// The numbers of one forest, in runs out of those of the process. One thread at a time.
class TicketNumbers {
 public:
  TicketNumbers() { renew(); }

  std::uint64_t next() {
    if (next_ == end_ || forks_ != forks.load(std::memory_order_relaxed)) [[unlikely]] renew();
    return next_++;
  }

 private:
  void renew();
  inline static std::atomic<std::uint32_t> forks{0};  // between the first process and this one
  friend struct TicketProcess;

  std::uint64_t next_ = 0, end_ = 0;
  std::uint32_t forks_ = 0;
};

}  // namespace agentq
