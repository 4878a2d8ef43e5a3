// Threads that share out the work of one call. Owns the threads; knows nothing of forests.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <unistd.h>

namespace agentq {

/// `size` threads, the caller's among them; the others start when they are first needed and sleep between calls.
class Crew {
 public:
  explicit Crew(std::uint32_t size) : size_(size) {}
  ~Crew() {
    if (hands_ && hands_->process == getpid()) hands_->stop();
    else hands_.release();  // after a fork the threads are the parent's
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  std::uint32_t size() const noexcept { return size_; }

  /// Starts the threads if there are none, as in a child process. @throws std::system_error if there can be none.
  void gather() {
    if (hands_ && hands_->process == getpid()) return;
    hands_.release();
    auto hands = std::make_unique<Hands>();
    try {
      for (std::uint32_t k = 1; k < size_; ++k) hands->threads.emplace_back(&Hands::serve, hands.get(), k);
    } catch (...) {
      hands->stop();
      throw;
    }
    hands_ = std::move(hands);
  }

  /// act(k) for each k below size(), side by side; back when all are done. `act` must not throw; gather() comes first.
  template <typename Act>
  void run(Act&& act) noexcept {
    Hands& hands = *hands_;
    hands.act = [](void* of, std::uint32_t k) { (*static_cast<std::remove_reference_t<Act>*>(of))(k); };
    hands.of = &act;
    hands.left.store(size_ - 1, std::memory_order_relaxed);
    hands.round.fetch_add(1, std::memory_order_release);
    hands.round.notify_all();
    act(std::uint32_t{0});
    for (std::uint32_t left; (left = hands.left.load(std::memory_order_acquire)) != 0;) hands.left.wait(left);
  }

 private:
  struct Hands {
    void serve(std::uint32_t k) {
      for (std::uint32_t seen = 0;; ++seen) {
        round.wait(seen, std::memory_order_acquire);
        if (stopped.load(std::memory_order_relaxed)) return;
        act(of, k);
        if (left.fetch_sub(1, std::memory_order_acq_rel) == 1) left.notify_one();
      }
    }
    void stop() {
      stopped.store(true, std::memory_order_relaxed);
      round.fetch_add(1, std::memory_order_release);
      round.notify_all();
      for (std::thread& thread : threads) thread.join();
    }

    std::vector<std::thread> threads;
    std::atomic<std::uint32_t> round{0}, left{0};
    std::atomic<bool> stopped{false};
    void (*act)(void*, std::uint32_t) = nullptr;
    void* of = nullptr;
    pid_t process = getpid();
  };

  std::uint32_t size_;
  std::unique_ptr<Hands> hands_;
};

}  // namespace agentq
