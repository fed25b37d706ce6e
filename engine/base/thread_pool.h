// A small pool for data-parallel loops: one caller, static shares, no queue.
//
// A pool of n threads is the calling thread and n - 1 workers. With n = 1 there is no worker and
// every loop runs inline. Between loops a worker spins for about 20 µs, so that the short loops of
// a decode step find it awake, and then sleeps in the kernel: an idle pool costs nothing, which
// matters because several worker processes share a machine's cores.
//
// Loops are started from one thread at a time (the pool's owner) and do not nest.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace skein::engine {

class ThreadPool {
 public:
  // REQUIRES: threads ≥ 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls body(index) once for each index in [0, threads()), each on its own thread (0 on the
  // caller's); returns when all have. What the bodies wrote is visible to the caller.
  template <typename Body>
  void RunOnEach(const Body& body) {
    if (threads_ == 1) {
      body(0);
      return;
    }
    Run([](const void* erased, int index) { (*static_cast<const Body*>(erased))(index); }, &body);
  }

  // Splits [0, count) into at most threads() contiguous shares of at least `grain` (≥ 1) and calls
  // body(begin, end) on each. Runs inline when one share is all there is.
  template <typename Body>
  void ParallelFor(int64_t count, int64_t grain, const Body& body) {
    if (count <= 0) return;
    const int64_t most = (count + grain - 1) / grain;
    const int64_t shares = most < threads_ ? most : threads_;
    if (shares <= 1) {
      body(int64_t{0}, count);
      return;
    }
    RunOnEach([&](int index) {
      if (index >= shares) return;
      const int64_t begin = count * index / shares;
      const int64_t end = count * (index + 1) / shares;
      if (begin < end) body(begin, end);
    });
  }

 private:
  using ErasedBody = void (*)(const void* body, int index);

  void Run(ErasedBody call, const void* body);
  void WorkerLoop(int index);

  const int threads_;
  std::vector<std::thread> workers_;

  // A loop is published by `call_` and `body_`, then a new `round_`; it is over when `running_` is
  // zero. Workers end when a round has no call.
  ErasedBody call_ = nullptr;
  const void* body_ = nullptr;
  // On cache lines of their own, by distance: gcc's sanitizers do not keep over-aligned objects
  // aligned on the stack.
  [[maybe_unused]] std::byte apart_a_[64];
  std::atomic<uint32_t> round_{0};
  [[maybe_unused]] std::byte apart_b_[64];
  std::atomic<int32_t> running_{0};
  [[maybe_unused]] std::byte apart_c_[64];
};

}  // namespace skein::engine
