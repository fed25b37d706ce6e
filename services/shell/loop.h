// Loop: the one thread that owns a core. Others reach the core only by posting tasks.
//
// The inbox is bounded for tasks from outside (TryPost). Heartbeats and lease renewals use a
// separate, high-priority inbox (TryPostFirst), so that a flood of requests cannot delay them.
// Completions of work that the core itself started (Post) are always taken, since the core bounds
// how much of it is in flight. After each batch of tasks the loop asks `next_deadline` when to call
// `tick` next, so a core never waits on a clock of its own.
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

  // Starts the thread. `next_deadline` returns MonotonicUs() time of the next tick, or INT64_MAX.
  // Both run on the loop.
  void Start(std::string name, std::function<int64_t()> next_deadline, std::function<void()> tick);

  // False at once when the inbox is full or the loop has stopped: answer RESOURCE_EXHAUSTED.
  [[nodiscard]] bool TryPost(Task task);
  // The same into an inbox of its own, of the same capacity, that is emptied first: for messages
  // without which their sender would count as dead.
  [[nodiscard]] bool TryPostFirst(Task task);
  // Always taken, also while stopping; dropped only after Stop returned.
  void Post(Task task);
  // The same into the inbox that is emptied first: for streams, each of which posts its next
  // message when the one before was handled.
  void PostFirst(Task task);

  // Runs `task` on the loop and waits for it. Not from the loop itself. False when the loop has
  // stopped.
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
  bool stopped_ = true;
  std::thread thread_;
};

}  // namespace skein::services
