// A mutex that serves in the order of asking. std::mutex lets a thread that unlocks and locks again
// (a progress loop) keep the others out for long; here each waiter gets its turn.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace skein::engine {

class FairMutex {
 public:
  void lock() {
    std::unique_lock<std::mutex> guard(mutex_);
    const uint64_t ticket = next_ticket_++;
    turn_.wait(guard, [&] { return serving_ == ticket; });
  }

  void unlock() {
    std::lock_guard<std::mutex> guard(mutex_);
    ++serving_;
    if (serving_ != next_ticket_) turn_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable turn_;
  uint64_t next_ticket_ = 0;
  uint64_t serving_ = 0;
};

}  // namespace skein::engine
