// Loop: the one thread that owns a core. Others reach the core only by posting tasks.
//
// The inbox is bounded for tasks from outside (TryPost). Heartbeats and lease renewals use a
// separate, high-priority inbox (TryPostFirst), so that a flood of requests cannot delay them.
// Completions of work that the core itself started (Post) are always accepted, because the core
// bounds how much of it is in flight. After each batch of tasks the loop asks `next_deadline` when
// to call `tick` next, so a core never waits on a clock of its own.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace skein::services {

// Microseconds of a monotonic clock with an arbitrary origin: the `now` of every core.
int64_t MonotonicUs();

// Of each process's loop: messages that wait for its core. More are refused.
inline constexpr size_t kInboxMax = 16384;

class Loop {
 public:
  using Task = std::function<void()>;

  explicit Loop(size_t capacity) : capacity_(capacity) {}
  ~Loop() { Stop(); }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Starts the thread. `next_deadline` returns the next tick in MonotonicUs() time, or INT64_MAX.
  // Both functions run on the loop.
  void Start(std::string name, std::function<int64_t()> next_deadline, std::function<void()> tick);

  // False at once when the inbox is full or the loop does not run; the caller answers
  // RESOURCE_EXHAUSTED.
  [[nodiscard]] bool TryPost(Task task);
  // The same for the high-priority inbox, of the same capacity, which is emptied first. For
  // messages that keep their sender from being declared dead.
  [[nodiscard]] bool TryPostFirst(Task task);
  // Always accepted, also while stopping; dropped only after Stop has returned. Before Start: runs
  // when it has started.
  void Post(Task task);
  // The same for the high-priority inbox. For streams, each of which posts its next message only
  // after the previous one was handled.
  void PostFirst(Task task);

  // Runs `task` on the loop and waits for it. False when the loop does not run. Not from the loop.
  bool RunAndWait(const Task& task);

  // Runs what is in the inbox, then joins the thread. Idempotent.
  void Stop();

 private:
  bool TryPostTo(std::vector<Task>* inbox, Task task);
  void PostTo(std::vector<Task>* inbox, Task task);
  void Run(const std::function<int64_t()>& next_deadline, const std::function<void()>& tick);

  const size_t capacity_;
  std::mutex mu_;
  std::condition_variable wake_;
  std::vector<Task> inbox_;
  std::vector<Task> first_;
  bool stopping_ = false;
  bool running_ = false;  // its thread takes tasks
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace skein::services
