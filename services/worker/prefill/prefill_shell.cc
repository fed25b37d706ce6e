#include "services/worker/prefill/prefill_shell.h"

#include <chrono>
#include <utility>

#include "services/codec/answer.h"
#include "services/codec/codec.h"
#include "services/worker/engine/sampling_codec.h"

namespace skein::services {
namespace {

// Of a put to a decode instance that lives: its blocks lie within one layer.
constexpr auto kPutTimeout = std::chrono::milliseconds(1500);

}  // namespace

PrefillShell::PrefillShell(WorkerEngine* engine, const std::string& orchestrator, size_t inbox)
    : WorkerShell(engine, orchestrator, inbox),
      groups_(engine->fabric.get(),
              [engine](const engine::Communicator& group) {
                return engine->fabric->WhyThroughHost(group);
              }),
      sender_(engine->transport.get(), engine->engine->Spec().kv, engine->regions, kPutTimeout,
              Ends()) {}

PrefillShell::~PrefillShell() { Stop(); }

void PrefillShell::Start(const scheduler::PrefillConfig& config, std::function<void()> drained,
                         std::function<void(const scheduler::EngineFailed&)> engine_failed) {
  StartLink(std::move(drained), std::move(engine_failed));
  runner_ = std::make_unique<EngineRunner>(
      engine_->engine.get(),
      EngineRunner::Told{.ended = [this](bool idle) { StepEnded(idle); },
                         .layer_queued =
                             [this](int layer) {
                               if (sender_.WakesFor(layer)) engine_->transport->Wake();
                             },
                         .layer_written = [this](const scheduler::RunStep& step,
                                                 int layer) { LayerWritten(step, layer); }},
      EngineRunner::Records{.counts = &step_counts_, .log = &step_log_}, &groups_);
  progress_ =
      std::make_unique<ProgressThread>([this] { Pump(); }, [this] { engine_->transport->Wake(); });
  StartCore("prefill", config, scheduler::Tick{});
}

// Else the step in flight may wait for its members until its deadline.
void PrefillShell::StopParts() { groups_.Stop(); }

absl::Status PrefillShell::Take(const v1::OrchestratorMessage& message) {
  switch (message.message_case()) {
    case v1::OrchestratorMessage::kAssign: {
      auto assign = FromProto(message.assign());
      if (!assign.ok()) return assign.status();
      Assign(*assign);
      return absl::OkStatus();
    }
    case v1::OrchestratorMessage::kStart: {
      auto start = FromProto(message.start());
      if (!start.ok()) return start.status();
      Handle(scheduler::StartCalled{*std::move(start)});
      return absl::OkStatus();
    }
    case v1::OrchestratorMessage::kDecodePlaced: {
      auto placed = FromProto(message.decode_placed());
      if (!placed.ok()) return placed.status();
      Handle(*std::move(placed));
      return absl::OkStatus();
    }
    default:
      return absl::InvalidArgumentError("message: a prefill-worker does not take this kind");
  }
}

void PrefillShell::Assign(const scheduler::AssignRequest& request) {
  const uint64_t call = next_call_++;
  assigns_[call] = {{}, request.spec->id, request.epoch, {}, request.sequence};
  const absl::Status checked = CheckSpec(*request.spec, engine_->engine->Spec().vocab_size);
  if (!checked.ok()) return On(scheduler::AnswerAssign{{call}, {checked}});
  Handle(scheduler::AssignCalled{{call}, request});
}

void PrefillShell::On(const scheduler::AnswerAssign& effect) {
  auto answered = assigns_.extract(effect.call.value);
  if (answered.empty()) return;
  answered.mapped().reply = effect.reply;
  v1::WorkerMessage message;
  *message.mutable_assigned() = ToProto(answered.mapped());
  orchestrator_.Send(std::move(message));
}

void PrefillShell::On(const scheduler::CallPlaceDecode& effect) {
  v1::WorkerMessage message;
  *message.mutable_place_decode() = ToProto(effect.request);
  orchestrator_.Send(std::move(message));
}

void PrefillShell::On(const scheduler::AbortStep& effect) {
  groups_.Abort(effect.step, absl::CancelledError("the request was cancelled"));
}

void PrefillShell::On(const scheduler::BreakGroup& effect) {
  groups_.Break(effect, absl::UnavailableError("a member of the ring has ended the plan"));
}

void PrefillShell::On(const scheduler::CallRegister& effect) {
  ForgetHandoffsOf(effect.request.ended);
  WorkerShell::On(effect);
}

void PrefillShell::On(const scheduler::CallReport& effect) {
  ForgetHandoffsOf(effect.request.ended);
  WorkerShell::On(effect);
}

void PrefillShell::On(const scheduler::Drained&) { drained_(); }

}  // namespace skein::services
