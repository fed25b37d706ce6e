#include "services/worker/prefill_shell.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "proto/decode_worker.grpc.pb.h"
#include "proto/orchestrator.grpc.pb.h"
#include "services/base/log.h"
#include "services/codec/codec.h"
#include "services/worker/block_ids.h"

namespace skein::services {
namespace {

constexpr auto kPumpWait = std::chrono::milliseconds(100);
// A put that was posted within the lease ends before the decode side's grace (2 s by default) does.
constexpr auto kPutTimeout = std::chrono::milliseconds(1500);

constexpr int64_t kLogEveryUs = 1'000'000;

engine::HandoffKey KeyOf(scheduler::RequestId id, scheduler::Epoch epoch) {
  return {id.router, id.serial, epoch.value};
}
scheduler::RequestId IdOf(engine::HandoffKey key) { return {key.a, key.b}; }
scheduler::Epoch EpochOf(engine::HandoffKey key) { return {key.c}; }

std::chrono::steady_clock::time_point TimePoint(scheduler::TimeUs us) {
  return std::chrono::steady_clock::time_point(std::chrono::microseconds(us));
}

std::vector<engine::HandoffBlock> HandoffBlocks(const std::vector<scheduler::PutBlock>& blocks) {
  std::vector<engine::HandoffBlock> out;
  out.reserve(blocks.size());
  for (const scheduler::PutBlock& block : blocks) out.push_back({block.local.value, block.global});
  return out;
}

}  // namespace

PrefillShell::PrefillShell(WorkerEngine* engine, const std::string& orchestrator, size_t inbox)
    : engine_(engine),
      groups_(engine->fabric.get()),
      orchestrator_(channels_.Get(orchestrator)),
      membership_(&calls_, orchestrator_),
      sender_(engine->transport.get(), engine->engine->Spec().kv, engine->regions, kPutTimeout,
              Ends()),
      loop_(inbox) {}

PrefillShell::~PrefillShell() { Stop(); }

engine::HandoffEnds PrefillShell::Ends() {
  return {.done =
              [this](engine::HandoffKey key, std::vector<int64_t> bytes) {
                Post(scheduler::HandoffDone{IdOf(key), EpochOf(key), std::move(bytes)});
              },
          .failed =
              [this](engine::HandoffKey key, absl::Status status) {
                LogWarning("handoff failed", {{"request_id", ToString(IdOf(key))},
                                              {"why", std::string(status.message())}});
                Post(scheduler::HandoffFailed{IdOf(key), EpochOf(key), std::move(status)});
              },
          .stopped =
              [this](engine::HandoffKey key) {
                Post(scheduler::HandoffStopped{IdOf(key), EpochOf(key)});
              }};
}

void PrefillShell::Start(const scheduler::PrefillConfig& config, std::function<void()> drained) {
  core_.emplace(config);
  drained_ = std::move(drained);
  runner_ = std::make_unique<EngineRunner>(
      engine_->engine.get(),
      [this](const scheduler::RunStep& step, int layer) { LayerDone(step, layer); },
      [this](scheduler::StepDone done) { Post(std::move(done)); }, &step_log_, &groups_);
  progress_ =
      std::make_unique<ProgressThread>([this] { Pump(); }, [this] { engine_->transport->Wake(); });
  loop_.Start(
      "prefill", [this] { return core_->NextDeadline(); }, [this] { Handle(scheduler::Tick{}); });
  Post(scheduler::Tick{});
}

void PrefillShell::Pump() {
  sender_.Pump(kPumpWait);
  if (const int64_t now = MonotonicUs(); now >= next_log_us_) {
    next_log_us_ = now + kLogEveryUs;
    LogNewLanes();
  }
}

// A transport that is slower than it should be must be seen, not guessed: say what carries the
// bytes and how fast.
void PrefillShell::LogNewLanes() {
  std::vector<engine::HandoffTotals> totals = sender_.Totals();
  for (size_t i = 0; i < totals.size(); ++i) {
    const uint64_t before = i < logged_.size() ? logged_[i].bytes : 0;
    // Once at the first handoff to a peer, then each time the bytes have grown eightfold.
    if (totals[i].bytes == 0 || totals[i].bytes < 8 * before) {
      if (i < logged_.size()) totals[i] = logged_[i];
      continue;
    }
    const double seconds = totals[i].busy_seconds;
    LogInfo(
        "handoff transport",
        {{"peer", static_cast<int64_t>(i)},
         {"lanes", totals[i].lanes},
         {"bytes", totals[i].bytes},
         {"gb_per_s", seconds > 0 ? static_cast<double>(totals[i].bytes) / seconds * 1e-9 : 0}});
  }
  logged_ = std::move(totals);
}

void PrefillShell::Drain(int64_t grace_us) { Post(scheduler::Drain{grace_us}); }

void PrefillShell::Stop() {
  // The loop first: until it has ended it may hand a step to the runner.
  loop_.Stop();
  const grpc::Status gone = ToGrpc(absl::UnavailableError("the worker is stopping"));
  assigns_.AbortAll(gone);
  starts_.AbortAll(gone);
  groups_.Stop();  // else the step in flight may wait for its members until its deadline
  runner_.reset();
  progress_.reset();
  calls_.CancelAndWait();
}

bool PrefillShell::Assign(scheduler::AssignRequest request, Calls<v1::AssignResponse>::Call call) {
  return loop_.TryPost([this, request = std::move(request), call] {
    const uint64_t id = next_call_++;
    assigns_.Add(id, call);
    Handle(scheduler::AssignCalled{{id}, request});
  });
}

bool PrefillShell::Start(const scheduler::StartRequest& request,
                         Calls<v1::StartResponse>::Call call) {
  return loop_.TryPost([this, request, call] {
    const uint64_t id = next_call_++;
    starts_.Add(id, call);
    Handle(scheduler::StartCalled{{id}, request});
  });
}

void PrefillShell::Cancel(const scheduler::CancelRequest& request) {
  Post(scheduler::CancelCalled{request});
}

bool PrefillShell::Inspect(
    const std::function<void(const scheduler::PrefillSnapshot&, const absl::Status&)>& look) {
  return loop_.RunAndWait(
      [this, &look] { look(core_->Snapshot(MonotonicUs()), core_->CheckInvariants()); });
}

void PrefillShell::Post(scheduler::PrefillEvent event) {
  loop_.Post([this, event = std::move(event)] { Handle(event); });
}

void PrefillShell::Handle(const scheduler::PrefillEvent& event) {
  for (const scheduler::PrefillEffect& effect : core_->Handle(event, MonotonicUs())) {
    std::visit([this](const auto& e) { On(e); }, effect);
  }
}

void PrefillShell::On(const scheduler::AnswerAssign& effect) {
  assigns_.Answer(effect.call.value, ToGrpc(effect.reply.status), [](v1::AssignResponse*) {});
}

void PrefillShell::On(const scheduler::AnswerStart& effect) {
  starts_.Answer(effect.call.value, ToGrpc(effect.reply.status), [](v1::StartResponse*) {});
}

void PrefillShell::On(const scheduler::CallBeginPrefill& effect) {
  std::shared_ptr<v1::Orchestrator::Stub> stub = v1::Orchestrator::NewStub(orchestrator_);
  CallUnary<v1::BeginPrefillResponse>(
      "orchestrator", &calls_, ToProto(effect.request), effect.timeout_us,
      [stub](auto* c, auto* q, auto* r, auto f) {
        stub->async()->BeginPrefill(c, q, r, std::move(f));
      },
      [this, id = effect.request.id, epoch = effect.request.epoch](
          absl::Status status, const v1::BeginPrefillResponse& response) {
        scheduler::BeginPrefillReply reply{std::move(status), {}};
        if (reply.status.ok()) {
          if (auto placed = FromProto(response); placed.ok()) {
            reply.placed = *std::move(placed);
          } else {
            reply.status = placed.status();
          }
        }
        Post(scheduler::BeginPrefillReplied{id, epoch, std::move(reply)});
      });
}

void PrefillShell::On(const scheduler::CallGrant& effect) {
  std::shared_ptr<v1::DecodeWorker::Stub> stub =
      v1::DecodeWorker::NewStub(channels_.Get(effect.endpoint));
  CallUnary<v1::GrantResponse>(
      "decode-worker", &calls_, ToProto(effect.request), effect.timeout_us,
      [stub](auto* c, auto* q, auto* r, auto f) { stub->async()->Grant(c, q, r, std::move(f)); },
      [this, id = effect.request.id, epoch = effect.request.epoch](
          absl::Status status, const v1::GrantResponse& response) {
        scheduler::GrantReply reply;
        reply.status = std::move(status);
        if (reply.status.ok()) {
          if (auto decoded = FromProto(response); decoded.ok()) {
            reply = *std::move(decoded);
          } else {
            reply.status = decoded.status();
          }
        }
        Post(scheduler::GrantReplied{id, epoch, std::move(reply)});
      });
}

void PrefillShell::On(const scheduler::CallRenew& effect) {
  std::shared_ptr<v1::DecodeWorker::Stub> stub =
      v1::DecodeWorker::NewStub(channels_.Get(effect.endpoint));
  CallUnary<v1::RenewResponse>(
      "decode-worker", &calls_, ToProto(effect.request), effect.timeout_us,
      [stub](auto* c, auto* q, auto* r, auto f) { stub->async()->Renew(c, q, r, std::move(f)); },
      [this, id = effect.request.id, epoch = effect.request.epoch](
          absl::Status status, const v1::RenewResponse& response) {
        Post(scheduler::RenewReplied{
            id, epoch, {std::move(status), static_cast<int64_t>(response.lease_us())}});
      });
}

void PrefillShell::On(const scheduler::CallCommit& effect) {
  std::shared_ptr<v1::DecodeWorker::Stub> stub =
      v1::DecodeWorker::NewStub(channels_.Get(effect.endpoint));
  CallUnary<v1::CommitResponse>(
      "decode-worker", &calls_, ToProto(effect.request), effect.timeout_us,
      [stub](auto* c, auto* q, auto* r, auto f) { stub->async()->Commit(c, q, r, std::move(f)); },
      [this, id = effect.request.id, epoch = effect.request.epoch](absl::Status status,
                                                                   const v1::CommitResponse&) {
        Post(scheduler::CommitReplied{id, epoch, {std::move(status)}});
      });
}

void PrefillShell::On(const scheduler::CallAbort& effect) {
  std::shared_ptr<v1::DecodeWorker::Stub> stub =
      v1::DecodeWorker::NewStub(channels_.Get(effect.endpoint));
  CallUnary<v1::AbortResponse>(
      "decode-worker", &calls_, ToProto(effect.request), effect.timeout_us,
      [stub](auto* c, auto* q, auto* r, auto f) { stub->async()->Abort(c, q, r, std::move(f)); },
      [](absl::Status, const v1::AbortResponse&) {});
}

void PrefillShell::On(const scheduler::OpenHandoff& effect) {
  const engine::HandoffKey key = KeyOf(effect.id, effect.epoch);
  opened_.insert(key);
  sender_.OpenShare(key, HandoffBlocks(effect.blocks), scheduler::PromptTokens(*effect.spec),
                    effect.more);
}

void PrefillShell::On(const scheduler::AddToHandoff& effect) {
  sender_.Add(KeyOf(effect.id, effect.epoch), HandoffBlocks(effect.blocks), effect.more);
}

void PrefillShell::On(const scheduler::RunStep& effect) { runner_->Run(effect); }

void PrefillShell::On(const scheduler::AbortStep& effect) {
  groups_.Abort(effect.step, absl::CancelledError("the request was cancelled"));
}

void PrefillShell::On(const scheduler::BreakGroup& effect) {
  groups_.Break(effect, absl::UnavailableError("a member has given the plan up"));
}

void PrefillShell::LayerDone(const scheduler::RunStep& step, int layer) {
  for (const scheduler::StepSequence& sequence : step.sequences) {
    const int64_t end = sequence.spanning != nullptr ? sequence.spanning->token_end
                                                     : sequence.position + sequence.count;
    sender_.Written(KeyOf(sequence.id, sequence.epoch), layer, end);
  }
}

void PrefillShell::On(const scheduler::StartHandoff& effect) {
  engine::HandoffGrant grant;
  grant.targets.push_back({.blocks = PlainIds(effect.remote_blocks), .memory = effect.memory});
  grant.post_until = TimePoint(effect.post_until_us);
  sender_.Grant(KeyOf(effect.id, effect.epoch), std::move(grant));
}

void PrefillShell::On(const scheduler::ExtendHandoff& effect) {
  sender_.Extend(KeyOf(effect.id, effect.epoch), TimePoint(effect.post_until_us));
}

void PrefillShell::On(const scheduler::StopHandoff& effect) {
  sender_.Stop(KeyOf(effect.id, effect.epoch));
}

void PrefillShell::On(const scheduler::CallRegister& effect) {
  membership_.Register(effect, [this](scheduler::RegisterReplied replied) {
    if (!replied.reply.status.ok()) {
      LogWarning("registration failed", {{"why", std::string(replied.reply.status.message())}});
    } else {
      LogInfo("registered", {{"instance", replied.reply.instance.value}});
    }
    Post(std::move(replied));
  });
}

void PrefillShell::On(const scheduler::CallReport& effect) {
  // What has ended has no handoff under way; one that was never granted is forgotten here.
  for (const scheduler::EndedRequest& ended : effect.request.ended) {
    const engine::HandoffKey key = KeyOf(ended.id, ended.epoch);
    if (opened_.erase(key) == 1) sender_.Discard(key);
  }
  membership_.Report(effect,
                     [this](scheduler::ReportReplied replied) { Post(std::move(replied)); });
}

void PrefillShell::On(const scheduler::CallUnregister& effect) {
  membership_.Unregister(
      effect, [this](scheduler::UnregisterReplied replied) { Post(std::move(replied)); });
}

void PrefillShell::On(const scheduler::Drained&) { drained_(); }

}  // namespace skein::services
