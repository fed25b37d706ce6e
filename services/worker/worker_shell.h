// WorkerShell: what the shells of both WorkerCores have: the link to the orchestrator, the engine's
// thread, the transport's progress, and how all of it starts and stops.
//
//   class DecodeShell : public WorkerShell<DecodeShell, DecodeCore, DecodeEvent, DecodeSnapshot>
//
// The shell has, besides what CoreShell asks for,
//   absl::Status Take(const v1::OrchestratorMessage&);   its role's messages, on the loop
//   void StopParts();                                    stops what it adds; the loop has ended
//   void MakeSpans(Tracer*);                             from here on it records spans there
// and takes the effects of its role with On beside `using WorkerShell::On`. Its destructor calls
// Stop.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "prometheus/histogram.h"
#include "proto/orchestrator.pb.h"
#include "scheduler/worker/membership/membership_events.h"
#include "scheduler/worker/steps/step.h"
#include "services/log/log.h"
#include "services/rpc/rpc.h"
#include "services/shell/core_shell.h"
#include "services/tracing/tracer.h"
#include "services/worker/engine/engine_runner.h"
#include "services/worker/engine/progress_thread.h"
#include "services/worker/engine/step_counts.h"
#include "services/worker/engine/step_log.h"
#include "services/worker/engine/worker_engine.h"
#include "services/worker/worker_link.h"

namespace skein::services {

template <class Shell, class Core, class Event, class Snapshot>
class WorkerShell : public CoreShell<Shell, Core, Event, Snapshot> {
 public:
  // As WorkerLink::OnRefused. Before Start.
  void OnRefused(std::function<void(const absl::Status&)> refused) {
    orchestrator_.OnRefused(std::move(refused));
  }
  // The tokens of each step are observed in it. Before Start; it outlives the shell.
  void ObserveSteps(prometheus::Histogram* tokens) { step_tokens_ = tokens; }
  // Spans of what it does are recorded there. Before Start; it outlives the shell.
  void Trace(Tracer* tracer) {
    tracer_ = tracer;
    shell()->MakeSpans(tracer);
  }
  // What completed here, by mode. Any thread.
  std::vector<StepTotals> StepTotalsByMode() const { return step_counts_.Totals(); }
  void Drain(int64_t grace_us) { this->Post(scheduler::Drain{grace_us}); }
  // An operator's order that came to this worker: it obeys at once, and tells the orchestrator.
  void OrderDrain(bool drain) {
    this->Post(scheduler::OrderDrain{drain});
    orchestrator_.OrderDrain(drain);
  }
  // As WorkerLink::MayDrain.
  absl::Status MayDrain() { return orchestrator_.MayDrain(); }
  void Stop() {
    // The loop first: until it has ended it may hand a step to the runner.
    this->loop_.Stop();
    orchestrator_.Close();
    shell()->StopParts();
    progress_.reset();  // it asks the runner
    runner_.reset();
    calls_.CancelAndWait();
  }

 protected:
  using Base = CoreShell<Shell, Core, Event, Snapshot>;

  // `engine` outlives the shell.
  WorkerShell(WorkerEngine* engine, const std::string& orchestrator, size_t inbox)
      : Base(inbox),
        engine_(engine),
        orchestrator_(&calls_, &this->loop_, &channels_, orchestrator) {}
  ~WorkerShell() = default;

  // Called on the loop: `drained` (by the shell) and `engine_failed` (may be empty).
  void StartLink(std::function<void()> drained,
                 std::function<void(const scheduler::EngineFailed&)> engine_failed) {
    drained_ = std::move(drained);
    engine_failed_ = std::move(engine_failed);
    const auto handle = [this](auto event) { this->Handle(std::move(event)); };
    orchestrator_.Start(
        {.registered =
             [this](scheduler::RegisterReplied event) {
               if (event.reply.status.ok()) shell()->Registered(event.reply);
               this->Handle(std::move(event));
             },
         .reported = handle,
         .unregistered = handle,
         .disconnected = handle,
         .cancelled = handle,
         .ordered = handle,
         .peer = [this](const std::string& address) { Meet(address); },
         .keep_trace = [this](const std::string& trace) { KeepTrace(trace); },
         .other =
             [this](const v1::OrchestratorMessage& message) { return shell()->Take(message); }});
  }

  void KeepTrace(const std::string& trace) {
    TraceId id{};
    if (tracer_ == nullptr || trace.size() != id.size()) return;
    std::copy(trace.begin(), trace.end(), id.begin());
    tracer_->Keep(id);
  }

  // Makes the link before a ring needs it.
  void Meet(const std::string& comm_address) {
    if (engine_->fabric == nullptr) return;
    const absl::Status linked = engine_->fabric->Connect(comm_address);
    if (linked.ok()) return;
    LogWarning("no link to another instance of the pool",
               {{"reason", std::string(linked.message())}});
  }

  void Registered(const scheduler::RegisterReply&) {}
  void AddToLoad(ShellLoad*) {}  // what its parts know, on the loop

  void On(const scheduler::RunStep& effect) {
    if (step_tokens_ != nullptr && !effect.probe) {
      step_tokens_->Observe(static_cast<double>(TokensOf(effect)));
    }
    runner_->Run(effect);
  }
  void On(const scheduler::ReleaseSequence& effect) { runner_->Release(effect); }
  // For the runner, as EngineRunner::Told::ended.
  void StepEnded(bool idle) {
    this->loop_.Post(
        [this] {
          for (scheduler::StepDone& done : runner_->TakeDone()) this->Queue(std::move(done));
          this->HandleQueued();
        },
        idle ? Loop::kHelpOnce : Loop::kBusy);
  }
  void On(const scheduler::CallRegister& effect) { orchestrator_.Open(effect, LoadNow()); }
  void On(const scheduler::CallReport& effect) { orchestrator_.Report(effect, LoadNow()); }
  void On(const scheduler::CallUnregister& effect) { orchestrator_.Unregister(effect); }
  void On(const scheduler::CloseStream&) { orchestrator_.CloseSilent(); }
  void On(const scheduler::EngineFailed& effect) {
    if (engine_failed_) engine_failed_(effect);
  }

  Tracer* tracer_ = nullptr;  // null: tracing is off
  WorkerEngine* const engine_;
  Channels channels_;
  CallTracker calls_;
  std::function<void()> drained_;
  WorkerLink orchestrator_;
  std::unique_ptr<ProgressThread> progress_;  // the shell makes it
  StepCounts step_counts_;
  std::unique_ptr<EngineRunner> runner_;  // the shell makes it

 private:
  Shell* shell() { return static_cast<Shell*>(this); }
  ShellLoad LoadNow() {
    ShellLoad load{.invariants_ok = this->invariants().ok()};
    shell()->AddToLoad(&load);
    return load;
  }

  std::function<void(const scheduler::EngineFailed&)> engine_failed_;
  prometheus::Histogram* step_tokens_ = nullptr;
};

}  // namespace skein::services
