// Loop: runs a core's tasks one after the other. Others reach the core only by posting tasks.
//
// Tasks run on the loop's own thread, or on a thread that posts with kHelp or kHelpOnce while the
// loop is idle: waking another thread costs more than most tasks. A helper runs what waits, its own
// task and others', for a few rounds at most, and leaves the rest to the loop's thread. "On the
// loop" means: within a task, on whatever thread.
//
// The inbox is bounded for tasks from outside (TryPost). Messages of the streams to and from the
// orchestrator use a separate inbox that is emptied first (PostFirst), so that other tasks do not
// delay them.
// They may delay one another: what each stream may have in this inbox is bounded, and leases take
// into account how late the loop itself is (ListeningClock).
// Completions of work that the core itself started (Post) are always accepted, because the core
// bounds how much of it is in flight. After each batch of tasks the loop asks `next_deadline` when
// to call `tick` next, so a core never waits on a clock of its own. Such a batch and its tick
// are a round; Defer puts something off until its end.
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
  // kHelp: the caller may run tasks of the loop, here and now. It holds no lock that a task may
  // take, and nothing waits for it that a task would wait for. kHelpOnce: the same for one round.
  // For threads with work of their own, which waits meanwhile: a step that a task launches on an
  // engine's thread, or KV that the transport's thread moves.
  enum Caller { kBusy, kHelpOnce, kHelp };

  explicit Loop(size_t capacity) : capacity_(capacity) {}
  ~Loop() { Stop(); }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Starts the thread. `next_deadline` returns the next tick in MonotonicUs() time, or INT64_MAX.
  // Both functions run on the loop.
  void Start(std::string name, std::function<int64_t()> next_deadline, std::function<void()> tick);

  // False at once when the inbox is full or the loop does not run; the caller answers
  // RESOURCE_EXHAUSTED.
  [[nodiscard]] bool TryPost(Task task, Caller caller = kBusy);
  // The same for the high-priority inbox, of the same capacity, which is emptied first. For
  // messages that keep their sender from being declared dead.
  [[nodiscard]] bool TryPostFirst(Task task, Caller caller = kBusy);
  // Always accepted, also while stopping; dropped only after Stop has returned. Before Start: runs
  // when it has started.
  void Post(Task task, Caller caller = kBusy);
  // The same for the high-priority inbox. For streams, each of which posts its next message only
  // after the previous one was handled.
  void PostFirst(Task task, Caller caller = kBusy);

  // On the loop: `task` runs at the end of this round, in the order of the calls. Messages are
  // deferred so that all of a round to one peer travel in one batch, and so that answers to calls
  // are sent first.
  void Defer(Task task) { deferred_.push_back(std::move(task)); }

  // Runs `task` on the loop and waits for it. False when the loop does not run. Not from the loop.
  bool RunAndWait(const Task& task);

  // Runs what is in the inbox, waits for helpers, then joins the thread. Idempotent.
  void Stop();

 private:
  bool TryPostTo(std::vector<Task>* inbox, Task task, Caller caller);
  void PostTo(std::vector<Task>* inbox, Task task, Caller caller);
  void Run();
  // With mu_ held. `lock` is free while tasks run.
  bool TasksWait() const { return !first_.empty() || !inbox_.empty(); }
  void Added(std::unique_lock<std::mutex>& lock, Caller caller);
  void RunRound(std::unique_lock<std::mutex>& lock);
  void RunDeferred();

  const size_t capacity_;
  std::function<int64_t()> next_deadline_;  // set by Start
  std::function<void()> tick_;
  std::mutex mu_;
  std::condition_variable wake_;
  std::vector<Task> inbox_;
  std::vector<Task> first_;
  bool stopping_ = false;
  bool running_ = false;  // its thread takes tasks
  bool stopped_ = false;
  bool busy_ = false;  // a thread runs tasks; it looks for new ones before it stops doing so
  // Of the thread that is busy.
  std::vector<Task> batch_first_, batch_, deferred_;
  int64_t sleeps_until_us_ = INT64_MAX;  // the loop's thread
  int64_t deadline_us_ = INT64_MIN;      // of the next tick, as of the last round
  std::thread thread_;
};

}  // namespace skein::services
