// The audit log (`router --audit-log FILE`): a JSON object a line for each request of a tenant that
// has ended or was refused, for accounts and for those who look into an incident. It holds no
// prompt, no answer and no key.
//
// Lines are only ever appended. A thread of its own writes and syncs them, so that no answer waits
// for a disk. When the disk refuses them, they are kept and tried again each second, up to a bound;
// what does not fit then is lost and counted. A line is written whole or not at all.
//
// Rotation: Reopen opens the path anew, for tools that rename the file and signal (SIGHUP); with a
// limit of its size the file is renamed to FILE.TIME by itself, TIME as 20261127T231500.123456Z.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/statusor.h"

namespace skein::services {

struct AuditRecord {
  std::string tenant, key_id, request_id, path, model;
  std::string outcome;  // "finished", "failed", "cancelled", "refused"
  std::string code;     // of the error; empty: none
  int status = 0;       // of HTTP
  int64_t prompt_tokens = 0, output_tokens = 0;
  int64_t took_us = 0;
  bool offline = false;  // a line of an offline job
};

// Without the time and the line's end. Strings that are no UTF-8 are made so.
std::string AuditLine(const AuditRecord& record, int64_t unix_us);

class AuditLog {
 public:
  struct Options {
    std::string path;
    int64_t bytes_max = 0;            // of one file; 0: no limit
    size_t held_bytes_max = 8 << 20;  // that wait for the disk
    int64_t retry_us = 1'000'000;
    std::function<int64_t()> unix_us;  // for tests; empty: the machine's clock
  };
  struct Counts {
    uint64_t written = 0;  // lines, synced
    uint64_t lost = 0;
    bool failing = false;  // the last try to write was refused
  };

  // Opens or makes the file, for the user alone. UNAVAILABLE says why not.
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(Options options);
  // Writes what waits, or counts it as lost.
  ~AuditLog();

  // Any thread; never waits for the disk.
  void Record(const AuditRecord& record);
  // The thread closes the file and opens its path anew before it writes again. Any thread.
  void Reopen();
  // Waits until what was recorded before is written or lost. For tests.
  void Flush();
  Counts counts() const { return {written_.load(), lost_.load(), failing_.load()}; }

 private:
  struct Batch {
    std::string text;
    uint64_t lines = 0;
  };

  explicit AuditLog(Options options) : options_(std::move(options)) {}
  absl::Status OpenFile();
  void Run();
  // False: nothing of it was written.
  bool Write(const Batch& batch);
  void Rotate();
  bool Fail(const std::string& what);

  const Options options_;
  // Of the thread.
  int fd_ = -1;
  int64_t size_ = 0;  // of the file, up to the last whole line
  std::atomic<uint64_t> written_{0}, lost_{0};
  std::atomic<bool> failing_{false};
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_, flushed_;
  Batch waiting_;
  size_t held_bytes_ = 0;  // of waiting_ and of what the thread has taken
  uint64_t recorded_ = 0;
  bool reopen_ = false, stopping_ = false;
  std::thread thread_;  // last: it uses the above
};

}  // namespace skein::services
