// A thread that calls `pump` again and again until it is stopped; pump sleeps inside.
#pragma once

#include <pthread.h>

#include <atomic>
#include <functional>
#include <thread>

namespace skein::services {

class ProgressThread {
 public:
  // `wake` makes a sleeping pump return.
  ProgressThread(std::function<void()> pump, std::function<void()> wake)
      : wake_(std::move(wake)), thread_([this, pump = std::move(pump)] {
          pthread_setname_np(pthread_self(), "transport");
          while (!stopping_.load(std::memory_order_acquire)) pump();
        }) {}
  ~ProgressThread() {
    stopping_.store(true, std::memory_order_release);
    wake_();
    thread_.join();
  }

 private:
  std::atomic<bool> stopping_{false};
  std::function<void()> wake_;
  std::thread thread_;
};

}  // namespace skein::services
