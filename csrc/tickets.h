// Tickets and the numbers they are made of. Knows no forest.
//
//     ticket   0 | number, 35 bits, never 0 | place in the forest's table of rollouts, 28 bits
//
// A forest accepts a ticket only if its own table holds exactly that ticket. One lookup and one comparison therefore
// refuse a used ticket, and a ticket of another or a destroyed forest. A process repeats no number before it has given
// out 2^35. Every other process, including a forked child, starts at another random number: its tickets are accepted
// with probability 2^-35.
#pragma once

#include <atomic>
#include <cstdint>

namespace agentq {

using Ticket = std::uint64_t;

namespace ticket {
inline constexpr unsigned kNumberBits = 35, kPlaceBits = 28;  // the sign bit stays 0: lists of tickets are int64 to NumPy
inline constexpr std::uint64_t kMost = std::uint64_t{1} << kPlaceBits;  // most rollouts of a forest at once
inline constexpr Ticket kNone = 0;                                      // names no rollout
inline constexpr std::uint32_t place(Ticket ticket) noexcept { return static_cast<std::uint32_t>(ticket & (kMost - 1)); }
inline constexpr Ticket of(std::uint64_t number, std::uint32_t place) noexcept { return number << kPlaceBits | place; }
}  // namespace ticket

/// The numbers of one forest, taken from the process in runs. One thread at a time.
class TicketNumbers {
 public:
  TicketNumbers() { renew(); }

  std::uint64_t next() {
    if (next_ == end_ || forks_ != forks.load(std::memory_order_relaxed)) [[unlikely]] renew();
    return next_++;
  }

 private:
  void renew();
  inline static std::atomic<std::uint32_t> forks{0};  // number of forks between the first process and this one
  friend struct TicketProcess;

  std::uint64_t next_ = 0, end_ = 0;
  std::uint32_t forks_ = 0;
};

}  // namespace agentq
