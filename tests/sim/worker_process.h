// The two kinds of workers of the simulation: the real cores, an emulated engine whose steps take
// virtual time, and real bytes between their KV regions.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/emulated/emulated_engine.h"
#include "scheduler/worker/decode/decode_core.h"
#include "scheduler/worker/prefill/prefill_core.h"
#include "scheduler/worker/token_streams.h"
#include "services/orchestrator_link/welcome_check.h"
#include "tests/sim/answers.h"
#include "tests/sim/cell_link.h"
#include "tests/sim/core_process.h"
#include "tests/sim/engine_thread.h"
#include "tests/sim/formation_feeds.h"
#include "tests/sim/formation_watch.h"
#include "tests/sim/group_steps.h"
#include "tests/sim/joint_steps.h"
#include "tests/sim/orchestrator_process.h"
#include "tests/sim/ring_groups.h"
#include "tests/sim/sender.h"
#include "tests/sim/transfers.h"

namespace skein::sim {

struct Done {  // the reply of calls that answer nothing
  absl::Status status;
};

// From an engine's failure until its process ends.
inline constexpr TimeUs kLastWordsUs = 500 * scheduler::kMillisecondUs;
inline constexpr TimeUs kRequestDeadlineUnits = 20'000;  // when the spec names none

// `unit_us`: a millisecond of the configuration (Scenario::time_scale).
scheduler::EngineWatchConfig EngineWatchOf(const engine::EmulatedEngine& engine, TimeUs unit_us);
// `has_links`: others may reach it (comm_address).
scheduler::MembershipConfig MembershipOf(scheduler::Role role, const Process& process,
                                         const engine::EmulatedEngine& engine, TimeUs unit_us,
                                         bool has_links);
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
  // From its next start on.
  void BeOtherBuild(bool other) { other_build_ = other; }
  bool other_build() const { return other_build_; }
  int64_t engines_failed() const { return engines_failed_; }  // of all incarnations
  bool drained() const { return drained_; }
  std::shared_ptr<engine::EmulatedEngine> engine() const { return engine_; }

  void Execute(scheduler::CallRegister& effect) {
    const EndedSet told = ended_;  // before, on other streams
    CheckEnded(effect.request.held, effect.request.ended);
    static_cast<Derived*>(this)->AddToLoad(&effect.request.load);
    cell_.BeginRound();
    RegisterWith(this->network_->Encoded(effect.request), told);
  }
  void RegisterWith(const scheduler::RegisterRequest& request, const EndedSet& told) {
    welcome_ = {};
    const uint64_t number = ++connections_;  // messages of an older one are not heard any more
    stream_ = this->network_->OpenDuplex(
        this, cell_.Ask(),
        [this, number, told, request](Process* callee, std::shared_ptr<Duplex> stream) {
          static_cast<OrchestratorProcess*>(callee)->Connect(
              stream,
              [this, number](const WorkerMessage& message) {
                if (number == connections_) Take(message);
              },
              request, told);
        },
        [this, number, told, request](absl::Status status) {
          if (number != connections_) return;
          stream_.reset();
          const bool another = cell_.Ended(status, welcome_.welcomed());
          if (another && !welcome_.welcomed()) return RegisterWith(request, told);
          Ended(std::move(status));
        });
  }
  void Execute(scheduler::CallReport& effect) {
    CheckEnded(effect.request.held, effect.request.ended);
    static_cast<Derived*>(this)->AddToLoad(&effect.request.load);
    last_report_ = effect.request.serial;
    ToOrchestrator(scheduler::ReportCalled{{}, this->network_->Encoded(effect.request)});
  }
  void Execute(scheduler::CallUnregister& effect) {
    ToOrchestrator(scheduler::UnregisterCalled{{}, this->network_->Encoded(effect.request)});
  }
  void Execute(scheduler::CloseStream&) {
    ++connections_;
    if (stream_ != nullptr) stream_->Close(Duplex::kClient, absl::CancelledError("closed"));
    stream_.reset();
    cell_.WasSilent();
  }
  // The process ends after its last words.
  void Execute(scheduler::EngineFailed& effect) {
    this->verdict_->Require(!engine_failed_, "an engine failed twice");
    engine_failed_ = true;
    ++engines_failed_;
    VirtualTime& time = this->network_->time();
    // It may stand still before.
    const TimeUs rest_us = 2 * this->network_->scenario().time_scale * scheduler::kSecondUs;
    time.At(time.now() + effect.leaves_within_us + rest_us, [this, mine = this->generation()] {
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
  // As WorkerLink::Ended.
  void Ended(absl::Status status) {
    if (!welcome_.welcomed() && absl::IsFailedPrecondition(status)) {
      return this->Dispatch(scheduler::RegisterReplied{{.status = std::move(status)}});
    }
    this->Dispatch(scheduler::Disconnected{std::move(status)});
  }
  void ToOrchestrator(scheduler::OrchestratorEvent message) {
    if (stream_ == nullptr) return;
    stream_->Send(Duplex::kClient, [stream = stream_, message = std::move(message),
                                    network = this->network_, asked = cell_.asked()] {
      // Found when it arrives: it may have been dead when the message was sent.
      Process* orchestrator = network->Find(asked);
      if (orchestrator == nullptr) return;
      static_cast<OrchestratorProcess*>(orchestrator)->Take(stream, message);
    });
  }
  void Take(const WorkerMessage& message) {
    const auto* welcome = std::get_if<scheduler::RegisterReply>(&message);
    std::optional<uint64_t> generation;
    if (welcome != nullptr) generation = welcome->generation.number;
    this->network_->NoteMalformed(welcome_.Take(generation, stream_->client_session()));
    std::visit([this](const auto& one) { this->On(one); }, message);
  }
  void Registered(const scheduler::RegisterReply&) {}
  void On(const scheduler::RegisterReply& reply) {
    static_cast<Derived*>(this)->Registered(reply);
    this->Dispatch(scheduler::RegisterReplied{reply});
  }
  void On(const scheduler::AnswerReport& answer) {
    this->Dispatch(scheduler::ReportReplied{last_report_, answer.reply});
  }
  void On(const scheduler::AnswerUnregister& answer) {
    this->Dispatch(scheduler::UnregisterReplied{answer.reply});
  }
  void On(const scheduler::CallDrainOrder& order) {
    this->Dispatch(scheduler::OrderDrain{order.request.drain});
  }
  void On(const scheduler::CallPeer&) {}  // simulated rings need no links
  void On(const scheduler::CallGroup& order) { static_cast<Derived*>(this)->Serve(order); }
  void On(const scheduler::CallPrepareFormation& order) { TakeFormation(order.request); }
  void On(const scheduler::CallCommitFormation& order) { TakeFormation(order.request); }
  void On(const scheduler::CallEndFormation& order) { TakeFormation(order.request); }
  void On(const scheduler::CallMode& order) { TakeFormation(order.request); }
  template <class Order>
  void TakeFormation(const Order& order) {
    if constexpr (requires(Derived * worker) { worker->ServeFormation(order); }) {
      static_cast<Derived*>(this)->ServeFormation(order);
    }
  }
  void On(const scheduler::CallCancel& cancel) {
    this->Dispatch(scheduler::CancelCalled{cancel.request});
  }
  template <class Message>
  void On(const Message& message) {
    static_cast<Derived*>(this)->Serve(message);
  }
  void StartEngine(scheduler::Role role) {
    engine::EmulatedOptions options = EngineOptions(role, this->network_->scenario().kv_heads);
    options.max_positions = this->network_->scenario().max_positions;
    const Scenario& scenario = this->network_->scenario();
    const bool prefill = role == scheduler::Role::kPrefill;
    options.kv.num_blocks = prefill ? scenario.prefill_blocks : scenario.decode_blocks;
    ++options.kv.num_blocks;  // for probes
    if (!prefill && scenario.formations.has_value()) {
      options.extra_blocks = scenario.formations->extra_blocks;
      options.kv.num_blocks += options.extra_blocks;
    }
    if (other_build_) {  // blocks of the same size
      options.kv.kv_heads *= 2;
      options.kv.head_dim /= 2;
    }
    engine_ = *engine::EmulatedEngine::Create(options);
    engine_thread_ = {};
    cell_.Start(this, scenario);
    engine_failed_ = false;
    ended_.clear();
    drained_ = false;
  }
  // An epoch that was reported as ended must stay ended: the orchestrator has planned the request
  // again, so a late message of the old epoch must not revive it.
  void CheckNotEnded(scheduler::RequestId id, scheduler::Epoch epoch, const char* how) {
    if (!ended_.contains({id, epoch})) return;
    this->verdict_->Violated(
        absl::StrCat(this->endpoint(), " ", how, " an epoch that it reported as ended"));
  }
  void CheckEnded(const std::vector<scheduler::HeldRequest>& all_held,
                  const std::vector<scheduler::EndedRequest>& all_ended) {
    for (const scheduler::HeldRequest& held : all_held) {
      CheckNotEnded(held.id, held.epoch, "holds");
    }
    for (const scheduler::EndedRequest& ended : all_ended) {
      ended_.insert({ended.id, ended.epoch});
    }
  }
  // The process ends; after a failure its supervisor starts it again.
  void Leave() {
    if constexpr (requires { static_cast<Derived*>(this)->Stopping(); }) {
      static_cast<Derived*>(this)->Stopping();
    }
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
  CellLink cell_;
  std::shared_ptr<Duplex> stream_;  // to the orchestrator; null: there is none
  uint64_t connections_ = 0;        // that were opened
  services::WelcomeCheck welcome_;  // of stream_
  uint64_t last_report_ = 0;
  std::shared_ptr<engine::EmulatedEngine> engine_;
  EngineThread engine_thread_;
  EndedSet ended_;  // reported, by this process
  bool drained_ = false;
  bool engine_failed_ = false;
  bool other_build_ = false;
  int64_t engines_failed_ = 0;
};

class PrefillProcess : public WorkerProcess<PrefillProcess, scheduler::PrefillCore,
                                            scheduler::PrefillEvent, scheduler::PrefillEffect> {
 public:
  static const CoreStates& States() {
    static const CoreStates states{"prefill",
                                   {"queued", "asking", "computing-ahead", "computing", "yielding",
                                    "computed", "committing", "ending"}};
    return states;
  }

  using WorkerProcess::Execute;
  using WorkerProcess::WorkerProcess;

  void FindMemoryBy(Sender::FindMemory find) { find_memory_ = std::move(find); }
  void StepWithOthersBy(JointSteps* joint_steps) { joint_steps_ = joint_steps; }
  void Stopping() { ring_groups_->Stop(); }  // in order, not by a crash

  // From the orchestrator.
  void Serve(const Assigned& message);
  void Serve(const scheduler::CallStart& message);
  void Serve(const scheduler::PlaceDecodeReplied& message);
  void Serve(const Announced& message) {}
  void Serve(const scheduler::CallWithdraw& message) {}
  void Serve(const scheduler::CallGroup& message) {}
  void AddToLoad(scheduler::WorkerLoad* load) const {}

  void Execute(scheduler::AnswerAssign& effect);
  void Execute(scheduler::CallPlaceDecode& effect);
  void Execute(scheduler::CallOpenTransfer& effect);
  void Execute(scheduler::CallRenew& effect);
  void Execute(scheduler::CallAcquireStagingBuffer& effect);
  void Execute(scheduler::CallTakePart& effect);
  void Execute(scheduler::CallReleaseStagingBuffer& effect);
  void Execute(scheduler::CallCommit& effect);
  void Execute(scheduler::CallAbort& effect);
  void Execute(scheduler::RunStep& effect);
  void Execute(scheduler::ReleaseSequence& effect) { engine_thread_.Release(effect); }
  void Execute(scheduler::AbortStep& effect);
  void Execute(scheduler::BreakGroup& effect);
  void Execute(scheduler::OpenHandoff& effect) { sender_->Open(effect); }
  void Execute(scheduler::AddToHandoff& effect) { sender_->Add(effect); }
  void Execute(scheduler::StartHandoff& effect) { sender_->Start(effect); }
  void Execute(scheduler::UseStagingBuffer& effect) { sender_->Use(effect); }
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
  std::unique_ptr<RingGroups> ring_groups_;
  std::unique_ptr<Sender> sender_;
  std::map<scheduler::CallId, scheduler::AssignReplied> assigns_;  // unanswered
};

class DecodeProcess : public WorkerProcess<DecodeProcess, scheduler::DecodeCore,
                                           scheduler::DecodeEvent, scheduler::DecodeEffect> {
 public:
  static const CoreStates& States() {
    static const CoreStates states{
        "decode", {"announced", "granted", "running", "preempted", "bound", "ended"}};
    return states;
  }

  using WorkerProcess::Execute;
  using WorkerProcess::WorkerProcess;

  void Registered(const scheduler::RegisterReply& reply) { tokens_->SetLease(reply.lease_us); }
  // `batch` runs at the router.
  using OnBatch = std::function<void(const scheduler::TokenBatch&)>;
  void OpenTokenStream(std::shared_ptr<Stream> stream, OnBatch batch);
  void TokenRequest(Stream* stream, const scheduler::TokenStreamRequest& request);
  // From the orchestrator.
  void Serve(const Announced& message);
  void Serve(const scheduler::CallWithdraw& message);
  void Serve(const scheduler::CallGroup& message);
  void AddToLoad(scheduler::WorkerLoad* load) const;
  void ServeFormation(const scheduler::PrepareFormation& order);
  void ServeFormation(const scheduler::CommitFormation& order);
  void ServeFormation(const scheduler::EndFormation& order);
  void ServeFormation(const scheduler::OrderMode& order);
  void Serve(const Assigned& message) {}
  void Serve(const scheduler::CallStart& message) {}
  void Serve(const scheduler::PlaceDecodeReplied& message) {}
  void Serve(const scheduler::OpenTransferRequest& request,
             std::function<void(scheduler::OpenTransferReply)> reply);
  void Serve(const scheduler::RenewRequest& request,
             std::function<void(scheduler::RenewReply)> reply);
  void Serve(const scheduler::AcquireStagingBufferRequest& request, const std::string& writer,
             std::function<void(scheduler::AcquireStagingBufferReply)> reply);
  void Serve(const scheduler::TakePartRequest& request,
             std::function<void(scheduler::TakePartReply)> reply);
  void Serve(const scheduler::ReleaseStagingBufferRequest& request,
             std::function<void(scheduler::ReleaseStagingBufferReply)> reply);
  void Serve(const scheduler::CommitRequest& request,
             std::function<void(scheduler::CommitReply)> reply);
  void Serve(const scheduler::AbortRequest& request);

  void Execute(scheduler::TellOpened& effect);
  void Execute(scheduler::AnswerOpenTransfer& effect);
  void Execute(scheduler::AnswerRenew& effect);
  void Execute(scheduler::AnswerAcquireStagingBuffer& effect);
  void Execute(scheduler::AnswerTakePart& effect);
  void Execute(scheduler::AnswerReleaseStagingBuffer& effect);
  void Execute(scheduler::CopyPart& effect);
  void Execute(scheduler::AnswerCommit& effect);
  void Execute(scheduler::CloseGrant& effect);
  void Execute(scheduler::EmitToken& effect);
  void Execute(scheduler::EndStream& effect);
  void Execute(scheduler::AskToMove& effect) { tokens_->Ask(effect); }
  void Executed();  // sends the tokens
  void Execute(scheduler::RunStep& effect);
  // Block to whose it is: the first choice of its answer, and its place in the table.
  using UsedBlocks = std::map<int32_t, std::pair<scheduler::RequestId, size_t>>;
  void CheckShared(const scheduler::StepSequence& sequence, UsedBlocks* used);
  void Execute(scheduler::ReleaseSequence& effect) { engine_thread_.Release(effect); }
  void BindWithOthersBy(FormationFeeds* feeds, GroupSteps* steps, FormationWatch* watch) {
    feeds_ = feeds;
    group_steps_ = steps;
    watch_ = watch;
  }
  void Execute(scheduler::OpenFeed& effect);
  void Execute(scheduler::CloseFeed& effect);
  void Execute(scheduler::SendOnFeed& effect);
  void Execute(scheduler::TellFormation& effect);
  void Execute(scheduler::TellMode& effect);
  void Execute(scheduler::CallSharing& effect);
  void TakeExtraBlocks(const std::vector<BlockMove>& moves);
  void Execute(scheduler::StreamGap& effect) {
    verdict_->Require(effect.gap_us >= 0, "a stream's gap at a switch is negative");
  }
  void Execute(scheduler::DecodeBegan&) {}
  void Execute(scheduler::SequenceNote&) {}

  // To whom it has granted blocks, in all incarnations.
  const std::set<std::pair<scheduler::RequestId, scheduler::Epoch>>& granted() const {
    return granted_;
  }
  // Of this incarnation; none when handoffs are one-sided.
  std::shared_ptr<std::vector<std::byte>> buffer(int buffer) const { return buffers_[buffer]; }
  int64_t parts_copied() const { return parts_copied_; }  // of all incarnations
  int64_t resumed() const { return resumed_; }            // preempted sequences; likewise
  // Prompts whose KV was to come to all ranks of the group that it leads; likewise.
  int64_t granted_to_groups() const { return granted_to_groups_; }
  // Out of the blocks that came with shared weights; likewise.
  int64_t blocks_moved() const { return blocks_moved_; }

 protected:
  void OnStart() override;
  void OnCrash() override;

 private:
  void ArmTokens();
  void StartStaging(scheduler::StagingConfig* config);
  void AddGrant(scheduler::GrantId grant, std::string* memory);
  struct TokenLink {
    std::shared_ptr<Stream> stream;
    OnBatch batch;
  };
  void CloseTokenStream(scheduler::TokenStreamId id);

  Unanswered<scheduler::OpenTransferReply> grants_;
  Unanswered<scheduler::RenewReply> renews_;
  Unanswered<scheduler::AcquireStagingBufferReply> acquisitions_;
  Unanswered<scheduler::TakePartReply> parts_;
  Unanswered<scheduler::ReleaseStagingBufferReply> releases_;
  Unanswered<scheduler::CommitReply> commits_;
  FormationFeeds* feeds_ = nullptr;
  GroupSteps* group_steps_ = nullptr;
  FormationWatch* watch_ = nullptr;
  std::map<scheduler::CallId, Transfers::Owner> granted_to_;
  std::map<scheduler::CallId, Transfers::Owner> asked_by_;
  std::vector<std::shared_ptr<std::vector<std::byte>>> buffers_;
  int64_t parts_copied_ = 0;
  int64_t resumed_ = 0;
  int64_t granted_to_groups_ = 0;
  int64_t blocks_moved_ = 0;
  std::unique_ptr<scheduler::TokenStreams> tokens_;
  TimeUs tokens_due_us_ = scheduler::kNever;  // their next beat
  std::map<scheduler::TokenStreamId, TokenLink> token_links_;
  uint64_t last_token_stream_ = 0;
  std::map<scheduler::RequestId, scheduler::Epoch> epochs_;  // the newest granted
  std::set<std::pair<scheduler::RequestId, scheduler::Epoch>> granted_;
};

}  // namespace skein::sim
