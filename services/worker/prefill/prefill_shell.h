// The shell of PrefillCore: loop, engine thread, handoff sender, calls to orchestrator and decode
// instances.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/handoff/handoff_sender.h"
#include "proto/decode_worker.grpc.pb.h"
#include "proto/orchestrator.pb.h"
#include "scheduler/worker/prefill/prefill_core.h"
#include "services/codec/codec.h"
#include "services/rpc/rpc.h"
#include "services/worker/engine/comm_log.h"
#include "services/worker/engine/ring_groups.h"
#include "services/worker/engine/step_log.h"
#include "services/worker/spans/prefill_spans.h"
#include "services/worker/worker_shell.h"

namespace skein::services {

class PrefillShell : public WorkerShell<PrefillShell, scheduler::PrefillCore,
                                        scheduler::PrefillEvent, scheduler::PrefillSnapshot> {
 public:
  // `engine` outlives the shell.
  PrefillShell(WorkerEngine* engine, const std::string& orchestrator, size_t inbox);
  ~PrefillShell();

  // Until then every message is refused: the servers may listen first, so that the config can name
  // their ports. Called on the loop: `drained` when the core has drained, `engine_failed` (may be
  // empty) when the engine has failed; Stop then waits for a step that may never end.
  void Start(const scheduler::PrefillConfig& config, std::function<void()> drained,
             std::function<void(const scheduler::EngineFailed&)> engine_failed = nullptr);

  std::vector<engine::HandoffTotals> HandoffTotals() const { return sender_.Totals(); }
  std::vector<engine::CommTotals> CommTotals() const {
    return engine_->fabric == nullptr ? std::vector<engine::CommTotals>()
                                      : engine_->fabric->Totals();
  }
  engine::FabricCounts CommMade() const {
    return engine_->fabric == nullptr ? engine::FabricCounts() : engine_->fabric->Made();
  }
  std::vector<StepTime> StepTimes(uint64_t after) const { return step_log_.After(after); }

 private:
  friend CoreShell;
  friend WorkerShell;

  void MakeSpans(Tracer* tracer) { spans_.emplace(tracer); }
  void Saw(const scheduler::PrefillEvent& event,
           const std::vector<scheduler::PrefillEffect>& effects, int64_t now_us) {
    if (spans_.has_value()) spans_->Saw(event, effects, now_us);
  }

  using WorkerShell::On;

  void On(const scheduler::AnswerAssign& effect);
  void On(const scheduler::CallPlaceDecode& effect);
  void On(const scheduler::CallOpenTransfer& effect);
  void On(const scheduler::CallRenew& effect);
  void On(const scheduler::CallAcquireStagingBuffer& effect);
  void On(const scheduler::CallTakePart& effect);
  void On(const scheduler::CallReleaseStagingBuffer& effect);
  void On(const scheduler::CallCommit& effect);
  void On(const scheduler::CallAbort& effect);
  void On(const scheduler::AbortStep& effect);
  void On(const scheduler::BreakGroup& effect);
  void On(const scheduler::OpenHandoff& effect);
  void On(const scheduler::AddToHandoff& effect);
  void On(const scheduler::StartHandoff& effect);
  void On(const scheduler::UseStagingBuffer& effect);
  void On(const scheduler::PartTaken& effect);
  void On(const scheduler::ExtendHandoff& effect);
  void On(const scheduler::StopHandoff& effect);
  void On(const scheduler::CallRegister& effect);
  void On(const scheduler::CallReport& effect);
  void On(const scheduler::Drained& effect);
  void LayerWritten(const scheduler::RunStep& step, int layer);
  void StopParts();
  // From the orchestrator, on the loop.
  absl::Status Take(const v1::OrchestratorMessage& message);
  void Assign(const scheduler::AssignRequest& request);
  // The handoff side: prefill_handoff.cc.
  template <typename Response>
  using Done = std::function<void(absl::Status, const Response&)>;
  template <typename Request, typename Response, typename Core>
  void CallDecode(UnaryMethod<v1::DecodeWorker, Request, Response> method,
                  const scheduler::DecodeCall<Core>& effect,
                  std::type_identity_t<Done<Response>> done);
  engine::HandoffEnds Ends();
  void ForgetHandoffsOf(const std::vector<scheduler::EndedRequest>& ended);
  void Pump();
  void LogTransports();

  RingGroups groups_;
  engine::HandoffSender sender_;
  // Only on the progress thread: the bytes that the log told last of each peer's handoffs.
  std::map<engine::PeerId, uint64_t> logged_;
  int64_t next_log_us_ = 0;
  scheduler::HandoffPath carried_;  // of the handoff whose end comes next
  CommLog comm_log_;
  StepLog step_log_;
  // Only on the loop.
  std::optional<PrefillSpans> spans_;                     // none: tracing is off
  std::map<uint64_t, scheduler::AssignReplied> assigns_;  // unanswered
  uint64_t next_call_ = 1;
  std::set<engine::HandoffKey> opened_;
};

}  // namespace skein::services
