#include "services/worker/prefill_shell.h"

#include <chrono>
#include <utility>

#include "proto/orchestrator.grpc.pb.h"
#include "services/codec/answer.h"
#include "services/codec/codec.h"
#include "services/worker/sampling_codec.h"

namespace skein::services {
namespace {

using OrchestratorMethods = v1::Orchestrator::StubInterface::async_interface;

// A put that was posted within the lease ends before the decode side's grace (2 s by default) does.
constexpr auto kPutTimeout = std::chrono::milliseconds(1500);

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

void PrefillShell::Start(const scheduler::PrefillConfig& config, std::function<void()> drained,
                         std::function<void(const absl::Status&)> engine_failed) {
  core_.emplace(config);
  drained_ = std::move(drained);
  engine_failed_ = std::move(engine_failed);
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

void PrefillShell::Drain(int64_t grace_us) { Post(scheduler::Drain{grace_us}); }

void PrefillShell::OrderDrain(bool drain) {
  Post(scheduler::OrderDrain{drain});
  membership_.OrderDrain(drain);
}

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
  const absl::Status checked = CheckSpec(*request.spec, engine_->engine->Spec().vocab_size);
  if (!checked.ok()) {
    call.reactor->Finish(ToGrpc(checked));
    return true;
  }
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

bool PrefillShell::Cancel(scheduler::CancelRequest request, grpc::ServerUnaryReactor* call) {
  return loop_.TryPost([this, request = std::move(request), call] {
    Handle(scheduler::CancelCalled{request});
    call->Finish(ToGrpc(core_->CheckEpoch(request.epoch)));
  });
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
  CallUnary<v1::Orchestrator>("orchestrator", orchestrator_, &OrchestratorMethods::BeginPrefill,
                              &calls_, ToProto(effect.request), effect.timeout_us,
                              [this, id = effect.request.id, epoch = effect.request.epoch](
                                  absl::Status status, const v1::BeginPrefillResponse& response) {
                                scheduler::BeginPrefillReply reply{std::move(status), {}};
                                if (reply.status.ok()) {
                                  if (auto placed = FromProto(response); placed.ok()) {
                                    reply.placed = *std::move(placed);
                                  } else {
                                    reply.status = MalformedAnswer("orchestrator", placed.status());
                                  }
                                }
                                Post(scheduler::BeginPrefillReplied{id, epoch, std::move(reply)});
                              });
}

void PrefillShell::On(const scheduler::RunStep& effect) {
  if (step_tokens_ != nullptr && !effect.probe) {
    step_tokens_->Observe(static_cast<double>(TokensOf(effect)));
  }
  runner_->Run(effect);
}

void PrefillShell::On(const scheduler::AbortStep& effect) {
  groups_.Abort(effect.step, absl::CancelledError("the request was cancelled"));
}

void PrefillShell::On(const scheduler::BreakGroup& effect) {
  groups_.Break(effect, absl::UnavailableError("a member has given the plan up"));
}

void PrefillShell::On(const scheduler::CallRegister& effect) {
  membership_.Register(effect, [this](auto replied) { Post(std::move(replied)); });
}

void PrefillShell::On(const scheduler::CallReport& effect) {
  ForgetHandoffsOf(effect.request);
  membership_.Report(effect, [this](auto replied) { Post(std::move(replied)); });
}

void PrefillShell::On(const scheduler::CallUnregister& effect) {
  membership_.Unregister(effect, [this](auto replied) { Post(std::move(replied)); });
}

void PrefillShell::On(const scheduler::EngineFailed& effect) {
  if (engine_failed_) engine_failed_(effect.status);
}

void PrefillShell::On(const scheduler::Drained&) { drained_(); }

}  // namespace skein::services
