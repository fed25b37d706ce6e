#include "services/shell/loop.h"

#include <pthread.h>

#include <chrono>
#include <future>
#include <memory>
#include <utility>

namespace skein::services {
namespace {

// Of a helper, which has work of its own.
constexpr int kHelpRounds = 4;

}  // namespace

int64_t MonotonicUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Loop::Start(std::string name, std::function<int64_t()> next_deadline,
                 std::function<void()> tick) {
  {
    std::lock_guard lock(mu_);
    next_deadline_ = std::move(next_deadline);
    tick_ = std::move(tick);
    running_ = true;
  }
  thread_ = std::thread([this, name = name.substr(0, 15)] {
    pthread_setname_np(pthread_self(), name.c_str());
    Run();
  });
}

bool Loop::TryPost(Task task, Caller caller) { return TryPostTo(&inbox_, std::move(task), caller); }

bool Loop::TryPostFirst(Task task, Caller caller) {
  return TryPostTo(&first_, std::move(task), caller);
}

bool Loop::TryPostTo(std::vector<Task>* inbox, Task task, Caller caller) {
  std::unique_lock lock(mu_);
  if (!running_ || stopping_ || inbox->size() >= capacity_) return false;
  inbox->push_back(std::move(task));
  Added(lock, caller);
  return true;
}

void Loop::Post(Task task, Caller caller) { PostTo(&inbox_, std::move(task), caller); }

void Loop::PostFirst(Task task, Caller caller) { PostTo(&first_, std::move(task), caller); }

void Loop::PostTo(std::vector<Task>* inbox, Task task, Caller caller) {
  std::unique_lock lock(mu_);
  if (stopped_) return;
  inbox->push_back(std::move(task));
  Added(lock, caller);
}

// Wakes with the lock held: the loop may be destroyed as soon as its thread has seen that it stops.
void Loop::Added(std::unique_lock<std::mutex>& lock, Caller caller) {
  if (busy_) return;  // who runs tasks looks again
  if (caller != kBusy && running_) {
    const int rounds = caller == kHelpOnce ? 1 : kHelpRounds;
    for (int i = 0; i < rounds && TasksWait() && !stopping_; ++i) RunRound(lock);
    if (!TasksWait() && !stopping_ && deadline_us_ >= sleeps_until_us_) return;
  }
  wake_.notify_one();
}

// One batch of tasks and the tick, if it is due then.
void Loop::RunRound(std::unique_lock<std::mutex>& lock) {
  busy_ = true;
  batch_first_.swap(first_);
  batch_.swap(inbox_);
  lock.unlock();
  for (std::vector<Task>* tasks : {&batch_first_, &batch_}) {
    for (Task& task : *tasks) task();
    tasks->clear();
  }
  RunDeferred();
  int64_t deadline_us = next_deadline_();
  if (MonotonicUs() >= deadline_us) {
    tick_();
    RunDeferred();
    deadline_us = next_deadline_();
  }
  lock.lock();
  deadline_us_ = deadline_us;
  busy_ = false;
}

// One of them may defer another.
void Loop::RunDeferred() {
  for (size_t i = 0; i < deferred_.size(); ++i) {
    const Task task = std::move(deferred_[i]);
    task();
  }
  deferred_.clear();
}

bool Loop::RunAndWait(const Task& task) {
  auto done = std::make_shared<std::promise<void>>();
  std::future<void> future = done->get_future();
  {
    std::unique_lock lock(mu_);
    if (!running_ || stopping_) return false;
    inbox_.push_back([&task, done] {
      task();
      done->set_value();
    });
    Added(lock, kBusy);
  }
  future.wait();
  return true;
}

void Loop::Stop() {
  {
    std::lock_guard lock(mu_);
    stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  std::lock_guard lock(mu_);
  stopped_ = true;  // if it never ran
}

void Loop::Run() {
  std::unique_lock lock(mu_);
  for (;;) {
    const auto awake = [this] { return !busy_ && (stopping_ || TasksWait()); };
    const auto due = [this] { return !busy_ && MonotonicUs() >= deadline_us_; };
    while (!awake() && !due()) {
      // While a helper is busy, it wakes this thread if something is left to do.
      sleeps_until_us_ = busy_ ? INT64_MAX : deadline_us_;
      if (sleeps_until_us_ == INT64_MAX) {
        wake_.wait(lock);
      } else {
        wake_.wait_until(lock, std::chrono::steady_clock::time_point(
                                   std::chrono::microseconds(sleeps_until_us_)));
      }
    }
    if (stopping_ && !TasksWait()) break;
    RunRound(lock);
  }
  running_ = false;
  stopped_ = true;
}

}  // namespace skein::services
