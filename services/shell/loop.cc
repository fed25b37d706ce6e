#include "services/shell/loop.h"

#include <pthread.h>

#include <chrono>
#include <future>
#include <memory>

namespace skein::services {

int64_t MonotonicUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Loop::Start(std::string name, std::function<int64_t()> next_deadline,
                 std::function<void()> tick) {
  {
    std::lock_guard lock(mu_);
    running_ = true;
  }
  thread_ = std::thread([this, name = name.substr(0, 15), next_deadline = std::move(next_deadline),
                         tick = std::move(tick)] {
    pthread_setname_np(pthread_self(), name.c_str());
    Run(next_deadline, tick);
  });
}

bool Loop::TryPost(Task task) { return TryPostTo(&inbox_, std::move(task)); }

bool Loop::TryPostFirst(Task task) { return TryPostTo(&first_, std::move(task)); }

bool Loop::TryPostTo(std::vector<Task>* inbox, Task task) {
  {
    std::lock_guard lock(mu_);
    if (!running_ || stopping_ || inbox->size() >= capacity_) return false;
    inbox->push_back(std::move(task));
  }
  wake_.notify_one();
  return true;
}

void Loop::Post(Task task) { PostTo(&inbox_, std::move(task)); }

void Loop::PostFirst(Task task) { PostTo(&first_, std::move(task)); }

void Loop::PostTo(std::vector<Task>* inbox, Task task) {
  {
    std::lock_guard lock(mu_);
    if (stopped_) return;
    inbox->push_back(std::move(task));
  }
  wake_.notify_one();
}

bool Loop::RunAndWait(const Task& task) {
  auto done = std::make_shared<std::promise<void>>();
  std::future<void> future = done->get_future();
  {
    std::lock_guard lock(mu_);
    if (!running_ || stopping_) return false;
    inbox_.push_back([&task, done] {
      task();
      done->set_value();
    });
  }
  wake_.notify_one();
  future.wait();
  return true;
}

void Loop::Stop() {
  {
    std::lock_guard lock(mu_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
  std::lock_guard lock(mu_);
  stopped_ = true;  // if it never ran
}

void Loop::Run(const std::function<int64_t()>& next_deadline, const std::function<void()>& tick) {
  std::vector<Task> first;
  std::vector<Task> batch;
  for (;;) {
    const int64_t deadline_us = next_deadline();
    {
      std::unique_lock lock(mu_);
      const auto awake = [this] { return stopping_ || !first_.empty() || !inbox_.empty(); };
      if (deadline_us == INT64_MAX) {
        wake_.wait(lock, awake);
      } else {
        wake_.wait_until(
            lock, std::chrono::steady_clock::time_point(std::chrono::microseconds(deadline_us)),
            awake);
      }
      first.swap(first_);
      batch.swap(inbox_);
      if (first.empty() && batch.empty() && stopping_) {
        running_ = false;
        stopped_ = true;
        return;
      }
    }
    for (std::vector<Task>* tasks : {&first, &batch}) {
      for (Task& task : *tasks) task();
      tasks->clear();
    }
    if (MonotonicUs() >= next_deadline()) tick();
  }
}

}  // namespace skein::services
