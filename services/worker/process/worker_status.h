// What a worker tells of itself on GET /status. Internal to services/worker.
#pragma once

#include <mutex>
#include <string>

#include "scheduler/worker/decode/decode_core.h"
#include "scheduler/worker/prefill/prefill_core.h"
#include "services/admin/process_status.h"
#include "services/worker/process/worker_options.h"

namespace skein::services {

// Of a running worker: state, reason and counts. `orchestrator` is its address.
void FillStatus(const scheduler::PrefillSnapshot& snapshot, const std::string& orchestrator,
                ProcessStatus* status);
void FillStatus(const scheduler::DecodeSnapshot& snapshot, const std::string& orchestrator,
                ProcessStatus* status);

// The life of a worker before its core runs: what it waits for, and what it was ordered meanwhile.
// Thread-safe.
class WorkerStart {
 public:
  WorkerStart(std::string role, std::string model);

  void WaitFor(const std::string& what);  // a model's folder
  void Load(int64_t done_bytes, int64_t total_bytes);
  void Order(bool drain);
  bool drain_ordered() const;
  // The endpoint is open.
  void Listen(const std::string& endpoint);

  ProcessStatus Status() const;

 private:
  mutable std::mutex mutex_;
  ProcessStatus status_;
  bool drain_ = false;
};

}  // namespace skein::services
