#include "engine/base/thread_pool.h"

#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr int kSpins = 1000;  // of about 20 ns each

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns once `value` is no longer `old`: spins a little, then sleeps.
template <typename T>
T AwaitChange(const std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpins; ++i) {
    const T now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    Pause();
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int threads) : threads_(threads) {
  SKEIN_CHECK(threads >= 1);
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { WorkerLoop(i); });
}

ThreadPool::~ThreadPool() {
  call_ = nullptr;
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(ErasedBody call, const void* body) {
  call_ = call;
  body_ = body;
  running_.store(threads_ - 1, std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  call(body, 0);
  for (int32_t left = running_.load(std::memory_order_acquire); left != 0;) {
    left = AwaitChange(running_, left);
  }
}

void ThreadPool::WorkerLoop(int index) {
  for (uint32_t seen = 0;;) {
    // Rounds cannot be skipped: the next one starts only when this worker has finished.
    seen = AwaitChange(round_, seen);
    if (call_ == nullptr) return;
    call_(body_, index);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

}  // namespace skein::engine
