// The two kinds of workers of the simulation: the real cores, an emulated engine whose steps take
// virtual time, and real bytes between their KV regions.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/emulated/emulated_engine.h"
#include "scheduler/worker/decode_core.h"
#include "scheduler/worker/prefill_core.h"
#include "tests/sim/core_process.h"
#include "tests/sim/engine_thread.h"
#include "tests/sim/joint_steps.h"
#include "tests/sim/orchestrator_process.h"
#include "tests/sim/sender.h"
#include "tests/sim/transfers.h"

namespace skein::sim {

struct Done {  // the reply of calls that answer nothing
  absl::Status status;
};

// After an engine's failure, until the process must have gone.
inline constexpr TimeUs kLastWordsUs = 500 * scheduler::kMillisecondUs;

// `unit_us`: a millisecond of the configuration (Scenario::time_scale).
scheduler::EngineWatchConfig EngineWatchOf(const engine::EmulatedEngine& engine, TimeUs unit_us);
scheduler::MembershipConfig MembershipOf(scheduler::Role role, const Process& process,
                                         TimeUs unit_us);
scheduler::BatchLimits BatchOf(scheduler::Role role, const Scenario& scenario);

// What both kinds have: an engine, a place in the cluster.
template <class Derived, class Core, class Event, class Effect>
class WorkerProcess : public CoreProcess<Derived, Core, Event, Effect, scheduler::Tick> {
 public:
  using Base = CoreProcess<Derived, Core, Event, Effect, scheduler::Tick>;
  WorkerProcess(Network* network, std::string endpoint, TimeUs clock_offset_us, Verdict* verdict,
                Transfers* transfers)
      : Base(network, std::move(endpoint), clock_offset_us, verdict), transfers_(transfers) {}

  void StartDrain(TimeUs grace_us) { this->Dispatch(scheduler::Drain{grace_us}); }
  void SlowDown(int64_t factor) { engine_thread_.slowness = factor; }
  void FailEngine(bool fails) { engine_thread_.fails = fails; }
  void HangEngine() { engine_thread_.hangs = true; }
  bool engine_hangs() const { return engine_thread_.hangs; }
  int64_t engines_failed() const { return engines_failed_; }  // of all incarnations
  bool drained() const { return drained_; }
  std::shared_ptr<engine::EmulatedEngine> engine() const { return engine_; }

  void Execute(scheduler::CallRegister& effect) {
    ToOrchestrator<scheduler::RegisterReply>(effect, [this](scheduler::RegisterReply reply) {
      this->Dispatch(scheduler::RegisterReplied{std::move(reply)});
    });
  }
  void Execute(scheduler::CallReport& effect) {
    CheckEnded(effect.request);
    const uint64_t serial = effect.request.serial;
    ToOrchestrator<scheduler::ReportReply>(effect, [this, serial](scheduler::ReportReply reply) {
      this->Dispatch(scheduler::ReportReplied{serial, std::move(reply)});
    });
  }
  void Execute(scheduler::CallUnregister& effect) {
    ToOrchestrator<scheduler::UnregisterReply>(effect, [this](scheduler::UnregisterReply reply) {
      this->Dispatch(scheduler::UnregisterReplied{std::move(reply)});
    });
  }
  // The process ends after its last words.
  void Execute(scheduler::EngineFailed&) {
    this->verdict_->Require(!engine_failed_, "an engine failed twice");
    engine_failed_ = true;
    ++engines_failed_;
    VirtualTime& time = this->network_->time();
    // It may stand still before.
    const TimeUs rest_us = 2 * this->network_->scenario().time_scale * scheduler::kSecondUs;
    time.At(time.now() + kLastWordsUs + rest_us, [this, mine = this->generation()] {
      this->verdict_->Require(this->generation() != mine,
                              "a process lives on with a failed engine");
    });
  }
  void Execute(scheduler::Drained&) {
    this->verdict_->Require(!drained_, "drained twice");
    drained_ = true;
    this->After(1, [this] { Leave(); });
  }

 protected:
  template <class Reply, class Effect2>
  void ToOrchestrator(const Effect2& effect, std::function<void(Reply)> done) {
    this->network_->template Call<Reply>(
        this, kOrchestrator, effect.timeout_us,
        [request = this->network_->Encoded(effect.request)](Process* callee,
                                                            std::function<void(Reply)> reply) {
          static_cast<OrchestratorProcess*>(callee)->Serve(request, std::move(reply));
        },
        std::move(done));
  }
  void StartEngine(scheduler::Role role) {
    engine::EmulatedOptions options = EngineOptions(role);
    const Scenario& scenario = this->network_->scenario();
    const bool prefill = role == scheduler::Role::kPrefill;
    options.kv.num_blocks = prefill ? scenario.prefill_blocks : scenario.decode_blocks;
    ++options.kv.num_blocks;  // for probes
    engine_ = *engine::EmulatedEngine::Create(options);
    engine_thread_ = {};
    engine_failed_ = false;
    ended_.clear();
    drained_ = false;
  }
  // What was reported as ended has ended for good: whoever planned it has planned it anew, so an
  // old message that comes late must not bring it back.
  void CheckNotEnded(scheduler::RequestId id, scheduler::Epoch epoch, const char* how) {
    if (!ended_.contains({id, epoch})) return;
    this->verdict_->Violated(
        absl::StrCat(this->endpoint(), " ", how, " an epoch that it reported as ended"));
  }
  void CheckEnded(const scheduler::ReportRequest& report) {
    for (const scheduler::HeldRequest& held : report.held) {
      CheckNotEnded(held.id, held.epoch, "holds");
    }
    for (const scheduler::EndedRequest& ended : report.ended) {
      ended_.insert({ended.id, ended.epoch});
    }
  }
  // The process ends; after a failure its supervisor starts it again.
  void Leave() {
    this->Crash();
    if (!engine_failed_) return;
    VirtualTime& time = this->network_->time();
    time.At(time.now() + 20 * scheduler::kMillisecondUs, [this] {
      if (!this->alive()) this->Start();
    });
  }
  Transfers::Place PlaceOf(scheduler::BlockId block) const {
    return {this->endpoint(), this->generation(), block.value};
  }

  Transfers* transfers_;
  std::shared_ptr<engine::EmulatedEngine> engine_;
  EngineThread engine_thread_;
  std::set<std::pair<scheduler::RequestId, scheduler::Epoch>> ended_;  // reported, by this process
  bool drained_ = false;
  bool engine_failed_ = false;
  int64_t engines_failed_ = 0;
};

class PrefillProcess : public WorkerProcess<PrefillProcess, scheduler::PrefillCore,
                                            scheduler::PrefillEvent, scheduler::PrefillEffect> {
 public:
  static const CoreStates& States() {
    static const CoreStates states{"prefill", {"queued", "asking", "placed", "ending"}};
    return states;
  }

  using WorkerProcess::Execute;
  using WorkerProcess::WorkerProcess;

  void FindMemoryBy(Sender::FindMemory find) { find_memory_ = std::move(find); }
  void StepWithOthersBy(JointSteps* joint_steps) { joint_steps_ = joint_steps; }

  void Serve(const scheduler::AssignRequest& request,
             std::function<void(scheduler::AssignReply)> reply);
  void Serve(const scheduler::StartRequest& request,
             std::function<void(scheduler::StartReply)> reply);
  void Serve(const scheduler::CancelRequest& request);

  void Execute(scheduler::AnswerAssign& effect);
  void Execute(scheduler::CallBeginPrefill& effect);
  void Execute(scheduler::CallGrant& effect);
  void Execute(scheduler::CallRenew& effect);
  void Execute(scheduler::CallAskBackend& effect);
  void Execute(scheduler::CallTakePart& effect);
  void Execute(scheduler::CallReleaseBackend& effect);
  void Execute(scheduler::CallCommit& effect);
  void Execute(scheduler::CallAbort& effect);
  void Execute(scheduler::RunStep& effect);
  void Execute(scheduler::AnswerStart& effect);
  void Execute(scheduler::AbortStep& effect);
  void Execute(scheduler::BreakGroup& effect);
  void Execute(scheduler::OpenHandoff& effect) { sender_->Open(effect); }
  void Execute(scheduler::AddToHandoff& effect) { sender_->Add(effect); }
  void Execute(scheduler::StartHandoff& effect) { sender_->Start(effect); }
  void Execute(scheduler::UseBackend& effect) { sender_->Use(effect); }
  void Execute(scheduler::PartTaken& effect) { sender_->Taken(effect); }
  void Execute(scheduler::ExtendHandoff& effect) { sender_->Extend(effect); }
  void Execute(scheduler::StopHandoff& effect) { sender_->Stop(effect); }

 protected:
  void OnStart() override;
  void OnCrash() override;

 private:
  void StepTogether(const scheduler::RunStep& step, EngineThread::LayerDone layer_done);

  Sender::FindMemory find_memory_;
  JointSteps* joint_steps_ = nullptr;
  std::unique_ptr<Sender> sender_;
  Unanswered<scheduler::AssignReply> assigns_;
  Unanswered<scheduler::StartReply> starts_;
};

class DecodeProcess : public WorkerProcess<DecodeProcess, scheduler::DecodeCore,
                                           scheduler::DecodeEvent, scheduler::DecodeEffect> {
 public:
  static const CoreStates& States() {
    static const CoreStates states{"decode", {"reserved", "granted", "running", "ended"}};
    return states;
  }

  using WorkerProcess::Execute;
  using WorkerProcess::WorkerProcess;

  // What the router's stream gets; runs at the router.
  struct Listener {
    std::function<void(const scheduler::EmitToken&)> token;
    std::function<void(const scheduler::EndStream&)> finished;
  };
  void Generate(scheduler::RequestId id, scheduler::Epoch epoch, std::shared_ptr<Stream> stream,
                Listener listener);
  void Serve(const scheduler::ReserveRequest& request,
             std::function<void(scheduler::ReserveReply)> reply);
  void Serve(const scheduler::GrantRequest& request,
             std::function<void(scheduler::GrantReply)> reply);
  void Serve(const scheduler::RenewRequest& request,
             std::function<void(scheduler::RenewReply)> reply);
  void Serve(const scheduler::AskBackendRequest& request, const std::string& writer,
             std::function<void(scheduler::AskBackendReply)> reply);
  void Serve(const scheduler::TakePartRequest& request,
             std::function<void(scheduler::TakePartReply)> reply);
  void Serve(const scheduler::ReleaseBackendRequest& request,
             std::function<void(scheduler::ReleaseBackendReply)> reply);
  void Serve(const scheduler::CommitRequest& request,
             std::function<void(scheduler::CommitReply)> reply);
  void Serve(const scheduler::CancelRequest& request);
  void Serve(const scheduler::AbortRequest& request);

  void Execute(scheduler::AnswerReserve& effect);
  void Execute(scheduler::AnswerGrant& effect);
  void Execute(scheduler::AnswerRenew& effect);
  void Execute(scheduler::AnswerAskBackend& effect);
  void Execute(scheduler::AnswerTakePart& effect);
  void Execute(scheduler::AnswerReleaseBackend& effect);
  void Execute(scheduler::CopyPart& effect);
  void Execute(scheduler::AnswerCommit& effect);
  void Execute(scheduler::EmitToken& effect);
  void Execute(scheduler::EndStream& effect);
  void Execute(scheduler::RunStep& effect);

  // Of this incarnation; none when handoffs are one-sided.
  std::shared_ptr<std::vector<std::byte>> buffer(int backend) const { return buffers_[backend]; }
  int64_t parts_copied() const { return parts_copied_; }  // of all incarnations

 protected:
  void OnStart() override;
  void OnCrash() override;

 private:
  void StartStaging(scheduler::StagingConfig* config);
  struct Attached {
    std::shared_ptr<Stream> stream;
    Listener listener;
  };

  Unanswered<scheduler::ReserveReply> reserves_;
  Unanswered<scheduler::GrantReply> grants_;
  Unanswered<scheduler::RenewReply> renews_;
  Unanswered<scheduler::AskBackendReply> asks_;
  Unanswered<scheduler::TakePartReply> parts_;
  Unanswered<scheduler::ReleaseBackendReply> releases_;
  Unanswered<scheduler::CommitReply> commits_;
  std::map<scheduler::CallId, Transfers::Owner> granted_to_;
  std::map<scheduler::CallId, Transfers::Owner> asked_by_;
  std::vector<std::shared_ptr<std::vector<std::byte>>> buffers_;
  int64_t parts_copied_ = 0;
  std::map<scheduler::CallId, Attached> streams_;
  std::map<scheduler::RequestId, scheduler::Epoch> epochs_;  // the newest reserved
};

}  // namespace skein::sim
