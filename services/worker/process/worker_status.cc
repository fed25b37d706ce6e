#include "services/worker/process/worker_status.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::services {
namespace {

void Count(const scheduler::PrefillSnapshot& snapshot, ProcessStatus* status) {
  status->running = snapshot.computing + snapshot.committing;
  status->waiting = snapshot.queued + snapshot.asking;
  status->in_flight = status->running + status->waiting + snapshot.ending;
  status->handoffs = snapshot.handoffs;
}

void Count(const scheduler::DecodeSnapshot& snapshot, ProcessStatus* status) {
  status->running = snapshot.running;
  status->waiting = snapshot.granted;
  // Those that have ended may still have tokens for a router that is on its way.
  status->in_flight = status->running + status->waiting + snapshot.unclaimed;
  status->handoffs = snapshot.granted;
}

template <typename Snapshot>
ProcessState StateOf(const Snapshot& snapshot) {
  if (!snapshot.engine.ok()) return ProcessState::kFailed;
  if (snapshot.stopping) return ProcessState::kStopping;
  if (snapshot.draining) {
    return snapshot.drained ? ProcessState::kDrained : ProcessState::kDraining;
  }
  return snapshot.registered ? ProcessState::kServing : ProcessState::kWaiting;
}

std::string ReasonOf(const ProcessStatus& status, const absl::Status& engine,
                     const absl::Status& orchestrator, const std::string& address) {
  switch (status.state) {
    case ProcessState::kFailed:
      return absl::StrCat("the engine failed: ", std::string(engine.message()));
    case ProcessState::kStopping:
      return absl::StrCat("stopping: ", WhatIsLeft(status));
    case ProcessState::kDraining:
      return absl::StrCat("draining: ", WhatIsLeft(status));
    case ProcessState::kDrained:
      return "drained: safe to delete";
    case ProcessState::kWaiting:
      return absl::StrCat("waiting for the orchestrator ", address, ": ",
                          std::string(orchestrator.message()));
    default:
      return "";
  }
}

template <typename Snapshot>
void Fill(const Snapshot& snapshot, const std::string& orchestrator, ProcessStatus* status) {
  Count(snapshot, status);
  status->started = true;
  if (snapshot.registered) status->instance = snapshot.instance.value;
  status->held_blocks = snapshot.load.held_blocks;
  status->state = StateOf(snapshot);
  status->reason = ReasonOf(*status, snapshot.engine, snapshot.orchestrator, orchestrator);
  status->safe_to_delete = snapshot.drained;
}

}  // namespace

void FillStatus(const scheduler::PrefillSnapshot& snapshot, const std::string& orchestrator,
                ProcessStatus* status) {
  Fill(snapshot, orchestrator, status);
}

void FillStatus(const scheduler::DecodeSnapshot& snapshot, const std::string& orchestrator,
                ProcessStatus* status) {
  Fill(snapshot, orchestrator, status);
}

WorkerStart::WorkerStart(std::string role, std::string model) {
  status_.role = std::move(role);
  status_.model = std::move(model);
  status_.state = ProcessState::kLoading;
  status_.reason = "loading the model";
  status_.safe_to_delete = true;
}

void WorkerStart::WaitFor(const std::string& what) {
  std::lock_guard lock(mutex_);
  status_.state = ProcessState::kWaiting;
  status_.reason = "waiting for the model: " + what;
}

void WorkerStart::Load(int64_t done_bytes, int64_t total_bytes) {
  std::lock_guard lock(mutex_);
  status_.state = ProcessState::kLoading;
  status_.reason = total_bytes == 0
                       ? "loading the model"
                       : absl::StrCat("loading weights: ", done_bytes * 100 / total_bytes, " %");
}

void WorkerStart::Order(bool drain) {
  std::lock_guard lock(mutex_);
  drain_ = drain;
}

bool WorkerStart::drain_ordered() const {
  std::lock_guard lock(mutex_);
  return drain_;
}

void WorkerStart::Listen(const std::string& endpoint) {
  std::lock_guard lock(mutex_);
  status_.endpoint = endpoint;
}

ProcessStatus WorkerStart::Status() const {
  std::lock_guard lock(mutex_);
  return status_;
}

}  // namespace skein::services
