// Decode-workers of a tiny model (tiny_model.h) in this process, as a group: real shells, engines,
// communicators and feeds, and an orchestrator that says when they are bound. On CPUs, or on what a
// test makes for each.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "scheduler/base/formation_messages.h"
#include "services/worker/group/testing/tiny_model.h"
#include "services/worker/testing/emulated_decode_worker.h"
#include "services/worker/testing/formation_orchestrator.h"
#include "services/worker/testing/watched_engine.h"

namespace skein::services::testing {

// The engine, with `blocks`, of a worker on CPUs. `reproducible` as the flag.
inline WorkerEngine TinyCpuEngine(const std::string& dir, int blocks,
                                  const std::string& reproducible) {
  WorkerOptions options = TinyWorkerOptions("cpu", dir, blocks);
  options.reproducible = reproducible;
  auto made = MakeWorkerEngine(options, scheduler::Role::kDecode);
  SKEIN_CHECK_MSG(made.ok(), made.status().ToString().c_str());
  return *std::move(made);
}

// A decode-worker with the requests that run there. The host reaches its KV.
class BoundWorker {
 public:
  BoundWorker(WorkerEngine engine, uint64_t index, const std::string& orchestrator) {
    auto watched = std::make_unique<WatchedEngine>(std::move(engine.engine));
    watched_ = watched.get();
    engine.engine = std::move(watched);
    scheduler::DecodeConfig config;
    config.membership.identity.model = "m";
    config.membership.identity.incarnation = {index + 1};
    config.membership.identity.comm_address = engine.fabric->Address();
    worker_ = std::make_unique<EmulatedDecodeWorker>(std::move(engine), config, 1024, orchestrator);
  }

  // Brings it here with its KV, when there is room.
  void Start(const scheduler::SpecPtr& spec, TinyModelAlone* prefill) {
    const int32_t first = prefill->FirstToken(*spec);
    worker_->shell().Post(scheduler::AnnounceCalled{{spec, {1}, {{1}}}, {}});
    scheduler::OpenTransferRequest open;
    open.id = spec->id;
    open.epoch = {1};
    open.prefill = {1};
    open.incarnation = {1};
    open.shape = ShapeOf(watched_->Spec());
    v1::OpenTransferResponse opened;
    while (Call(&v1::DecodeWorker::Stub::OpenTransfer, ToProto(open), &opened).error_code() ==
           grpc::StatusCode::RESOURCE_EXHAUSTED) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    prefill->CopyKv({opened.blocks().begin(), opened.blocks().end()}, *watched_);
    scheduler::CommitRequest commit;
    commit.id = spec->id;
    commit.epoch = {1};
    commit.prefill = {1};
    commit.token = first;
    const engine::KvSpec& kv = watched_->Spec().kv;
    commit.bytes_per_layer.assign(static_cast<size_t>(kv.num_layers),
                                  opened.blocks_size() * kv.BlockBytes());
    v1::CommitResponse committed;
    const grpc::Status status = Call(&v1::DecodeWorker::Stub::Commit, ToProto(commit), &committed);
    EXPECT_TRUE(status.ok()) << status.error_message();
    specs_.push_back(spec);
  }

  // The group of this formation, which it leads, computes it from its first token on.
  void StartInGroup(const scheduler::SpecPtr& spec, uint64_t formation) {
    worker_->shell().Post(
        scheduler::AnnounceCalled{{.spec = spec, .epoch = {1}, .formation = formation}, {}});
    specs_.push_back(spec);
  }

  // The tokens of all that were started, by serial, when all have ended.
  std::map<uint64_t, std::vector<int32_t>> Answers() {
    grpc::ClientContext context;
    const auto stream = worker_->stub()->StreamTokens(&context);
    v1::TokenStreamRequest request;
    for (const scheduler::SpecPtr& spec : specs_) {
      auto* attach = request.add_attach();
      *attach->mutable_id() = ToProto(spec->id);
      attach->set_epoch(1);
      attach->set_credit(1 << 20);
    }
    if (!specs_.empty()) stream->Write(request);
    std::map<uint64_t, std::vector<int32_t>> answers;
    size_t ended = 0;
    for (v1::TokenBatch batch; ended < specs_.size() && stream->Read(&batch);) {
      for (const v1::TokenBatch::Sequence& one : batch.sequences()) {
        std::vector<int32_t>& answer = answers[one.id().serial()];
        EXPECT_EQ(one.first_index(), answer.size());
        answer.insert(answer.end(), one.tokens().begin(), one.tokens().end());
        if (!one.has_finished()) continue;
        ++ended;
        EXPECT_EQ(one.finished().reason(), v1::FINISH_REASON_LENGTH) << one.DebugString();
      }
    }
    context.TryCancel();
    return answers;
  }
  // The same, compared; and forgets them.
  void ExpectTokensOfOneAlone(TinyModelAlone* alone) {
    std::map<uint64_t, std::vector<int32_t>> answers = Answers();
    for (const scheduler::SpecPtr& spec : std::exchange(specs_, {})) {
      EXPECT_EQ(answers[spec->id.serial], alone->TokensOf(*spec)) << "request " << spec->id.serial;
    }
  }

  WatchedEngine& engine() { return *watched_; }
  // Its weights, with others.
  bool shares() {
    engine::WeightSharing& sharing = *worker_->engine().sharing;
    const auto between_orders = sharing.DuringStep();
    return sharing.shares();
  }
  DecodeShell& shell() { return worker_->shell(); }
  scheduler::DecodeSnapshot Look() { return shell().Look()->snapshot; }
  // Of steps together, without own ones.
  std::vector<StepTotals> GroupSteps() {
    std::vector<StepTotals> totals = shell().StepTotalsByMode();
    std::erase_if(totals, [](const StepTotals& one) { return one.mode == "own"; });
    return totals;
  }

 private:
  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (v1::DecodeWorker::Stub::*method)(grpc::ClientContext*,
                                                                   const Request&, Response*),
                    const Request& request, Response* response) {
    grpc::ClientContext context;
    return (worker_->stub()->*method)(&context, request, response);
  }
  std::unique_ptr<EmulatedDecodeWorker> worker_;
  WatchedEngine* watched_ = nullptr;
  std::vector<scheduler::SpecPtr> specs_;
};

// All are in one group, whose first one leads.
class BoundWorkers {
 public:
  using Phase = scheduler::FormationTold::Phase;
  using Switch = scheduler::Switch;
  static constexpr int64_t kShiftTokens = 6;
  static constexpr scheduler::TimeUs kKeepUs = 60 * scheduler::kSecondUs;

  BoundWorkers(const std::string& dir, int size, int blocks, const std::string& reproducible)
      : BoundWorkers(size, [&] { return TinyCpuEngine(dir, blocks, reproducible); }) {}

  // `make` makes each worker's engine.
  BoundWorkers(int size, const std::function<WorkerEngine()>& make) {
    for (int i = 0; i < size; ++i) {
      workers_.push_back(std::make_unique<BoundWorker>(make(), i, orchestrator_.address()));
    }
    orchestrator_.OrderGroups(1, workers_.size());
    for (auto& worker : workers_) {
      AwaitThat([&] { return !worker->shell().GroupWays().empty(); });
    }
  }

  int size() const { return static_cast<int>(workers_.size()); }
  BoundWorker& lead() { return *workers_[0]; }
  const std::vector<std::unique_ptr<BoundWorker>>& workers() const { return workers_; }
  uint64_t epoch() const { return epoch_; }  // of the latest bind

  static void AwaitThat(const std::function<bool()>& so) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (!so()) {
      ASSERT_LT(std::chrono::steady_clock::now(), until);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  // All of them, under a new epoch; steps of more than kShiftTokens tokens run in a base with this
  // tp.
  void Bind(int32_t base_tp = 1) {
    ++epoch_;
    for (int i = 0; i < size(); ++i) {
      orchestrator_.Tell(i,
                         scheduler::PrepareFormation{epoch_, 1, 0, size(), kKeepUs,
                                                     scheduler::ShiftRule{kShiftTokens, base_tp}});
    }
    for (int i = 0; i < size(); ++i) Expect(i, Phase::kPrepared);
    orchestrator_.Tell(0, scheduler::CommitFormation{epoch_});
    for (int i = 0; i < size(); ++i) Expect(i, Phase::kBound);
  }
  void Release(Switch how) {
    orchestrator_.Tell(0, scheduler::EndFormation{epoch_, how, absl::CancelledError("released")});
    for (int i = 0; i < size(); ++i) Expect(i, Phase::kEnded);
  }
  // All of them share their weights, under a new epoch.
  void Share(scheduler::SharedMode mode) {
    ++epoch_;
    turn_ = 0;
    for (int i = 0; i < size(); ++i) {
      orchestrator_.Tell(i, scheduler::PrepareFormation{.epoch = epoch_,
                                                        .generation = 1,
                                                        .first = 0,
                                                        .size = size(),
                                                        .keep_us = kKeepUs,
                                                        .shared = mode});
    }
    for (int i = 0; i < size(); ++i) Expect(i, Phase::kPrepared);
    for (int i = 0; i < size(); ++i) orchestrator_.Tell(i, scheduler::CommitFormation{epoch_});
    for (int i = 0; i < size(); ++i) Expect(i, Phase::kBound);
  }
  void SetMode(scheduler::SharedMode mode) {
    using Act = scheduler::OrderMode::Act;
    using Told = scheduler::ModeTold::Phase;
    ++turn_;
    for (const auto& [act, phase] :
         {std::pair{Act::kReady, Told::kReady}, {Act::kSet, Told::kSet}}) {
      for (int i = 0; i < size(); ++i) {
        orchestrator_.Tell(i, scheduler::OrderMode{epoch_, turn_, mode, act});
      }
      for (int i = 0; i < size(); ++i) {
        const scheduler::ModeTold told = orchestrator_.AwaitMode(i, epoch_, turn_, phase);
        EXPECT_EQ(told.phase, phase) << "worker " << i << ": " << told.why;
      }
    }
  }
  // Each has its own weights again.
  void Unshare() {
    for (int i = 0; i < size(); ++i) {
      orchestrator_.Tell(
          i, scheduler::EndFormation{epoch_, Switch::kHard, absl::CancelledError("released")});
    }
    for (int i = 0; i < size(); ++i) Expect(i, Phase::kEnded);
  }
  void Expect(uint64_t worker, Phase phase) {
    const scheduler::FormationTold told = orchestrator_.Await(worker, epoch_, phase);
    EXPECT_EQ(told.phase, phase) << "worker " << worker << ": " << told.why;
  }

 private:
  FormationOrchestrator orchestrator_;
  std::vector<std::unique_ptr<BoundWorker>> workers_;
  uint64_t epoch_ = 0;
  uint64_t turn_ = 0;  // the latest of that epoch
};

}  // namespace skein::services::testing
