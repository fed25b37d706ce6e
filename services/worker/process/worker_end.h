// How a worker process ends: by a stop signal, because the orchestrator refused its registration,
// or because its engine failed.
// Internal to services/worker.
//
// After a failure the engine's thread may never return, and what belongs to the engine may be
// unusable: the process then ends without joining or destroying anything (ExitWithFailedEngine).
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

#include "absl/status/status.h"

namespace skein::services {

// Thread-safe.
class WorkerEnd {
 public:
  WorkerEnd();
  ~WorkerEnd();
  WorkerEnd(const WorkerEnd&) = delete;
  WorkerEnd& operator=(const WorkerEnd&) = delete;

  // From the shell: its core has drained, or its engine has failed. Never block.
  void Drained();
  // The first counts. `leaves_within_s`: by then the core has drained.
  void EngineFailed(const absl::Status& status, double leaves_within_s);
  // The orchestrator refuses this worker. The first counts. Never blocks.
  void Refused(const absl::Status& status);

  // Why the engine failed; OK while it works.
  absl::Status engine() const;
  double leaves_within_s() const;  // of that failure

  // Why the registration was refused; OK if it was not.
  absl::Status refused() const;

  // Blocks until SIGTERM or SIGINT, which are blocked in every thread, EngineFailed or Refused. The
  // signal is consumed. One thread calls it, once.
  void AwaitStop();
  // Until Drained. False: `seconds` passed first.
  bool AwaitDrained(double seconds);

 private:
  // Keeps the first of its kind in `first`, and wakes AwaitStop.
  void Fail(const absl::Status& status, const char* message, absl::Status* first);

  mutable std::mutex mu_;
  std::condition_variable changed_;
  bool drained_ = false;
  absl::Status engine_;
  double leaves_within_s_ = 0;
  absl::Status refused_;
  int failed_fd_ = -1;  // readable from EngineFailed or Refused on
};

// Runs `stop`. False: it has not returned within `seconds`, and still runs on a thread of its own.
bool RunWithin(double seconds, std::function<void()> stop);

// Logs why, and ends the process with kEngineFailed, at once.
[[noreturn]] void ExitWithFailedEngine(const absl::Status& why);

}  // namespace skein::services
