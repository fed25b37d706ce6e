// The thread that writes log lines to standard error, so that no other thread waits for the reader
// of the log. Internal to services/log (log.cc).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>

namespace skein::services {

// Lines wait in a queue of at most kBytesMax bytes. When it is full, lines are dropped and counted
// until half of it is free; then one line gives the number. Never destroyed, because threads may
// log while the process exits. Any thread.
class LogThread {
 public:
  static constexpr size_t kBytesMax = 4 << 20;

  // `lost_line(n)` makes the line that reports n lost lines. Called with the queue's lock held.
  explicit LogThread(std::function<std::string(int64_t lines)> lost_line);
  LogThread(const LogThread&) = delete;
  LogThread& operator=(const LogThread&) = delete;

  // Takes a line with its newline. Never blocks.
  void Push(std::string line);

  // Waits until all lines taken so far are written, including the line that reports lost ones.
  // Later lines are not waited for. False: `patience` has passed. Signal handlers may call it; they
  // never run on the log's own thread, where signals are blocked.
  bool Flush(std::chrono::milliseconds patience) const;

  // Lines lost since the start: the queue was full, or standard error could not be written.
  int64_t lost() const { return lost_total_.load(std::memory_order_relaxed); }

 private:
  void Start();
  [[noreturn]] void Run();
  struct Line {
    std::string text;
    int64_t tells = 0;  // number of lost lines that this line reports; 0: an ordinary line
  };
  void Append(Line line);
  void TellLost();

  const std::function<std::string(int64_t)> lost_line_;
  std::mutex mu_;
  std::condition_variable wake_;
  std::deque<Line> queue_;
  size_t queued_bytes_ = 0;  // including the line being written
  int64_t lost_ = 0;         // lost and not yet reported by a queued line
  // Since the start: lines queued, and of these written; lines dropped because the queue was full,
  // and of these reported; lost lines of either kind.
  std::atomic<int64_t> queued_{0}, written_{0};
  std::atomic<int64_t> refused_{0}, told_{0};
  std::atomic<int64_t> lost_total_{0};
};

}  // namespace skein::services
