// The shell of OrchestratorCore: owns the loop, turns RPCs into events and effects into answers and
// calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "proto/orchestrator.grpc.pb.h"
#include "scheduler/orchestrator/orchestrator_core.h"
#include "services/base/bidi_stream.h"
#include "services/base/calls.h"
#include "services/base/loop.h"
#include "services/base/message_counters.h"
#include "services/base/rpc.h"
#include "services/base/stream_writer.h"

namespace skein::services {

class OrchestratorShell {
 public:
  using PlanStream = StreamWriter<v1::PlanUpdate>;
  using WorkerStream = ServerStream<v1::WorkerMessage, v1::OrchestratorMessage>;

  OrchestratorShell(const scheduler::OrchestratorConfig& config, size_t inbox);
  ~OrchestratorShell();

  void Start();
  // Ends every call that waits with UNAVAILABLE and joins the loop.
  void Stop();

  // From gRPC threads. False: the inbox is full, or the shell has stopped.
  [[nodiscard]] bool Submit(scheduler::SpecPtr spec, bool alone, std::shared_ptr<PlanStream> stream,
                            uint64_t call);
  void SubmitClosed(uint64_t call);
  // A worker's stream begins.
  WorkerStream* Connect(grpc::CallbackServerContext* context);
  [[nodiscard]] bool ReportRouter(scheduler::RouterReport report,
                                  Calls<v1::RouterReportResponse>::Call call);
  [[nodiscard]] bool Drain(scheduler::DrainRequest request, Calls<v1::DrainResponse>::Call call);
  int64_t instance_lease_us() const { return instance_lease_us_; }
  // In force from the next plan on.
  void ReplaceTables(scheduler::PlanningTables tables);
  uint64_t NextCall() { return next_call_.fetch_add(1); }

  // What Status and ListModels read: a copy that is at most kCopyAgeUs old and
  // tells of every registration, departure and order to drain that was answered. However many ask,
  // the loop makes no more than one copy in that time, and it checks no invariants for it.
  static constexpr int64_t kCopyAgeUs = 100'000;
  struct Copy {
    scheduler::OrchestratorSnapshot snapshot;
    absl::Status invariants;  // of the last CheckInvariants; OK before the first
    int64_t taken_us = 0;     // MonotonicUs() then
    // ListModels' answer, made once for all who ask while the copy is fresh; without the lease.
    v1::ListModelsResponse models;
  };
  using CopyPtr = std::shared_ptr<const Copy>;
  // Null when the shell has stopped. Not from the loop.
  CopyPtr Look();
  // The same without waiting, for gRPC threads: `look` runs at once or on the loop.
  [[nodiscard]] bool LookLater(std::function<void(const Copy&)> look);
  // What probes and /metrics read: OrchestratorCore::Totals as they are now, and the result of the
  // last CheckInvariants (OK before the first). `look` runs on the loop. False when the shell has
  // stopped. Not from the loop.
  bool Count(const std::function<void(const scheduler::OrchestratorSnapshot&,
                                      const absl::Status& invariants)>& look);
  // Checks at most once in kCheckSpacingUs, for all requests and instances, on the loop; in between
  // it returns what it found last. Not from the loop.
  static constexpr int64_t kCheckSpacingUs = 1'000'000;
  absl::Status CheckInvariants();
  uint64_t copies_made() const { return copies_made_.load(); }
  uint64_t checks_made() const { return checks_made_.load(); }
  // `answer` runs on the loop.
  using Explanations = std::vector<scheduler::Explanation>;
  [[nodiscard]] bool ExplainLater(std::string request,
                                  std::function<void(const Explanations&)> answer);
  [[nodiscard]] bool ListLater(scheduler::RequestOrder order, size_t limit,
                               std::function<void(const Explanations&)> answer);

 private:
  void Handle(const scheduler::OrchestratorEvent& event);
  CopyPtr FreshCopy() const;  // null: it is too old
  CopyPtr MakeCopy();         // on the loop; the fresh one, if there is one
  void DropCopy();            // what it says is no longer so
  void On(const scheduler::SendPlanUpdate& effect);
  void On(const scheduler::EndSubmit& effect);
  void On(const scheduler::AnswerPlaceDecode& effect);
  void On(const scheduler::AnswerRegister& effect);
  void On(const scheduler::AnswerReport& effect);
  void On(const scheduler::AnswerUnregister& effect);
  void On(const scheduler::CloseWorker& effect);
  void On(const scheduler::AnswerRouterReport& effect);
  void On(const scheduler::AnswerDrain& effect);
  void On(const scheduler::CallAssign& effect);
  void On(const scheduler::CallStart& effect);
  void On(const scheduler::CallAnnounce& effect);
  void On(const scheduler::CallWithdraw& effect);
  void On(const scheduler::CallCancel& effect);
  void On(const scheduler::CallDrainOrder& effect);

  // A worker's stream.
  struct Worker {
    std::shared_ptr<WorkerStream> stream;
    MessageCounters counters;
    scheduler::InstanceId instance;  // 0: not registered yet
  };
  void Take(uint64_t call, const v1::WorkerMessage& message);
  absl::Status Take(uint64_t call, Worker& worker, const v1::WorkerMessage& message);
  template <typename Event>
  absl::Status TakeResult(const Worker& worker, absl::StatusOr<Event> result);
  void WorkerEnded(uint64_t call);
  std::optional<Worker> TakeWorker(uint64_t call);  // out of the maps
  void CloseWorker(uint64_t call, const absl::Status& status);
  void DropWorker(uint64_t call, const absl::Status& status);  // the core does not know yet
  void Send(uint64_t call, v1::OrchestratorMessage message);
  void Send(scheduler::InstanceId instance, v1::OrchestratorMessage message);

  std::atomic<uint64_t> next_call_{1};
  std::atomic<uint64_t> copies_made_{0};
  std::atomic<uint64_t> checks_made_{0};
  mutable std::mutex copy_mutex_;
  CopyPtr copy_;  // by copy_mutex_; null before the first, and when it was dropped
  // Below: only on the loop.
  const int64_t instance_lease_us_;
  scheduler::OrchestratorCore core_;
  absl::Status checked_;     // what the last CheckInvariants found
  int64_t checked_us_ = -1;  // -1: there was none
  std::map<uint64_t, std::shared_ptr<PlanStream>> plans_;
  std::map<uint64_t, Worker> workers_;                   // by call
  std::map<scheduler::InstanceId, uint64_t> connected_;  // calls of those registered
  Calls<v1::RouterReportResponse> router_reports_;
  Calls<v1::DrainResponse> drains_;
  // Last: its thread uses all of the above.
  Loop loop_;
};

}  // namespace skein::services
