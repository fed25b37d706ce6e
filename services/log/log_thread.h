// The thread that writes log lines to standard error, so that no other thread waits for the reader
// of the log. Internal to services/base (log.cc).
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
// until half of it is free again; then one line says how many were dropped. Never destroyed:
// threads may log while the process ends. All methods: any thread.
class LogThread {
 public:
  static constexpr size_t kBytesMax = 4 << 20;

  // `lost_line(n)` makes the line that tells that n lines were lost; it is called with the queue's
  // lock held.
  explicit LogThread(std::function<std::string(int64_t lines)> lost_line);
  LogThread(const LogThread&) = delete;
  LogThread& operator=(const LogThread&) = delete;

  // Takes a line with its newline. Never waits.
  void Push(std::string line);

  // Waits until all lines taken so far are written, with the line that tells how many were lost
  // among them. Later lines are not waited for. False: `patience` passed first. May be called in
  // the handler of a signal, which never runs on the log's own thread: signals are blocked there.
  bool Flush(std::chrono::milliseconds patience) const;

  // Lines lost since the process started: for want of room in the queue, or because standard error
  // could not be written.
  int64_t lost() const { return lost_total_.load(std::memory_order_relaxed); }

 private:
  void Start();
  [[noreturn]] void Run();
  struct Line {
    std::string text;
    int64_t tells = 0;  // of so many lost lines; 0: an ordinary line
  };
  void Append(Line line);
  void TellLost();

  const std::function<std::string(int64_t)> lost_line_;
  std::mutex mu_;
  std::condition_variable wake_;
  std::deque<Line> queue_;
  size_t queued_bytes_ = 0;  // with the line that is being written
  int64_t lost_ = 0;         // and no line queued that tells of them
  // Since the start. Lines that were queued, and those of them that were written; lines for which
  // the queue had no room, and those of which a written line has told; lost lines of either kind.
  std::atomic<int64_t> queued_{0}, written_{0};
  std::atomic<int64_t> refused_{0}, told_{0};
  std::atomic<int64_t> lost_total_{0};
};

}  // namespace skein::services
