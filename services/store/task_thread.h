// TaskThread: a thread that runs tasks one after the other, in the order in which they were posted.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace skein::services {

class TaskThread {
 public:
  TaskThread() : thread_([this] { Run(); }) {}
  ~TaskThread() { Stop(); }
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  // Any thread. The poster bounds how many wait. Dropped after Stop.
  void Post(std::function<void()> task) {
    {
      std::lock_guard lock(mu_);
      if (stopping_) return;
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

  // Drops what waits, and waits for the task that runs. Idempotent; not from a task.
  void Stop() {
    {
      std::lock_guard lock(mu_);
      stopping_ = true;
      tasks_.clear();
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Run() {
    std::unique_lock lock(mu_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (stopping_) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace skein::services
