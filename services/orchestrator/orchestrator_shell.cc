#include "services/orchestrator/orchestrator_shell.h"

#include <utility>

#include "services/base/log.h"
#include "services/codec/codec.h"
#include "services/orchestrator/model_list.h"

namespace skein::services {
using scheduler::CallId;

OrchestratorShell::OrchestratorShell(const scheduler::OrchestratorConfig& config, size_t inbox)
    : instance_lease_us_(config.instance_lease_us), core_(config), loop_(inbox) {}

OrchestratorShell::~OrchestratorShell() { Stop(); }

void OrchestratorShell::Start() {
  loop_.Start(
      "orchestrator", [this] { return core_.NextDeadline(); },
      [this] { Handle(scheduler::OrchestratorTick{}); });
}

void OrchestratorShell::Stop() {
  loop_.Stop();
  const grpc::Status gone = ToGrpc(absl::UnavailableError("the orchestrator is stopping"));
  router_reports_.AbortAll(gone);
  drains_.AbortAll(gone);
  for (auto& [call, stream] : plans_) stream->Close(gone);
  plans_.clear();
  for (auto& [call, worker] : workers_) worker.stream->Close(gone);
  workers_.clear();
}

bool OrchestratorShell::Submit(scheduler::SpecPtr spec, bool alone,
                               std::shared_ptr<PlanStream> stream, uint64_t call) {
  return loop_.TryPost([this, spec = std::move(spec), alone, stream = std::move(stream), call] {
    plans_[call] = stream;
    Handle(scheduler::SubmitCalled{{call}, spec, alone});
  });
}

void OrchestratorShell::SubmitClosed(uint64_t call) {
  loop_.Post([this, call] {
    if (plans_.erase(call) == 1) Handle(scheduler::SubmitClosed{{call}});
  });
}

OrchestratorShell::WorkerStream* OrchestratorShell::Connect(grpc::CallbackServerContext* context) {
  const uint64_t call = NextCall();
  auto stream = WorkerStream::Make(
      context, [this](std::function<void()> hook) { loop_.PostFirst(std::move(hook)); });
  loop_.PostFirst([this, call, stream] {
    workers_.emplace(call, Worker{stream, MessageCounters(call), {}});
  });
  stream->Open({.message = [this, call](const v1::WorkerMessage& m) { Take(call, m); },
                .ended = [this, call] { WorkerEnded(call); }});
  return stream.get();
}

void OrchestratorShell::WorkerEnded(uint64_t call) {
  const std::optional<Worker> ended = TakeWorker(call);
  if (!ended.has_value() || ended->instance.value == 0) return;
  LogWarning("the stream of an instance ended", {{"instance", ended->instance.value}});
  Handle(scheduler::WorkerDisconnected{{call}});
}

std::optional<OrchestratorShell::Worker> OrchestratorShell::TakeWorker(uint64_t call) {
  auto taken = workers_.extract(call);
  if (taken.empty()) return std::nullopt;
  const auto connected = connected_.find(taken.mapped().instance);
  if (connected != connected_.end() && connected->second == call) connected_.erase(connected);
  return std::move(taken.mapped());
}

void OrchestratorShell::CloseWorker(uint64_t call, const absl::Status& status) {
  if (const std::optional<Worker> closed = TakeWorker(call)) closed->stream->Close(ToGrpc(status));
}

void OrchestratorShell::DropWorker(uint64_t call, const absl::Status& status) {
  CloseWorker(call, status);
  loop_.PostFirst([this, call] { Handle(scheduler::WorkerDisconnected{{call}}); });
}

void OrchestratorShell::Take(uint64_t call, const v1::WorkerMessage& message) {
  const auto it = workers_.find(call);
  if (it == workers_.end()) return;
  absl::Status status = it->second.counters.Take(message);
  if (status.ok()) status = Take(call, it->second, message);
  if (status.ok()) return;
  LogWarning("a worker's message is refused",
             {{"instance", it->second.instance.value}, {"reason", std::string(status.message())}});
  DropWorker(call, status);
}

// A message may end the stream: `worker` is not used after Handle.
absl::Status OrchestratorShell::Take(uint64_t call, Worker& worker,
                                     const v1::WorkerMessage& message) {
  const bool registered = worker.instance.value != 0;
  if (registered == message.has_hello()) {
    return absl::InvalidArgumentError("hello: is not the first message, or not there");
  }
  switch (message.message_case()) {
    case v1::WorkerMessage::kHello: {
      auto hello = FromProto(message.hello());
      if (!hello.ok()) return hello.status();
      const bool prefill = hello->identity.role == scheduler::Role::kPrefill;
      LogInfo("instance registers", {{"instance_role", prefill ? "prefill" : "decode"},
                                     {"model", hello->identity.model},
                                     {"endpoint", hello->identity.endpoint}});
      Handle(scheduler::RegisterCalled{{call}, *std::move(hello)});
      return absl::OkStatus();
    }
    case v1::WorkerMessage::kReport: {
      auto report = FromProto(message.report());
      if (!report.ok()) return report.status();
      Handle(scheduler::ReportCalled{{call}, *std::move(report)});
      return absl::OkStatus();
    }
    case v1::WorkerMessage::kGoodbye: {
      auto goodbye = FromProto(message.goodbye());
      if (!goodbye.ok()) return goodbye.status();
      LogInfo("instance unregisters", {{"instance", goodbye->instance.value}});
      Handle(scheduler::UnregisterCalled{{call}, *std::move(goodbye)});
      return absl::OkStatus();
    }
    case v1::WorkerMessage::kPlaceDecode: {
      auto asked = FromProto(message.place_decode());
      if (!asked.ok()) return asked.status();
      Handle(scheduler::PlaceDecodeCalled{{call}, *std::move(asked)});
      return absl::OkStatus();
    }
    case v1::WorkerMessage::kAssigned:
      return TakeResult(worker, FromProto(message.assigned()));
    case v1::WorkerMessage::kOpened:
      return TakeResult(worker, FromProto(message.opened()));
    default:
      return absl::InvalidArgumentError("message: is missing");
  }
}

template <typename Event>
absl::Status OrchestratorShell::TakeResult(const Worker& worker, absl::StatusOr<Event> result) {
  if (!result.ok()) return result.status();
  result->instance = worker.instance;
  Handle(*std::move(result));
  return absl::OkStatus();
}

void OrchestratorShell::Send(uint64_t call, v1::OrchestratorMessage message) {
  const auto it = workers_.find(call);
  if (it == workers_.end()) return;  // it has ended; the core hears of that next
  Worker& worker = it->second;
  if (worker.counters.unacknowledged() >= MessageCounters::kUnacknowledgedMax) {
    return DropWorker(call, absl::ResourceExhaustedError("messages are not acknowledged"));
  }
  worker.counters.Stamp(&message);
  worker.stream->Write(std::move(message));
}

void OrchestratorShell::Send(scheduler::InstanceId instance, v1::OrchestratorMessage message) {
  const auto it = connected_.find(instance);
  if (it != connected_.end()) Send(it->second, std::move(message));
}

bool OrchestratorShell::ReportRouter(scheduler::RouterReport report,
                                     Calls<v1::RouterReportResponse>::Call call) {
  return loop_.TryPostFirst([this, report = std::move(report), call] {
    const uint64_t id = NextCall();
    router_reports_.Add(id, call);
    Handle(scheduler::RouterReported{{id}, report});
  });
}

bool OrchestratorShell::Drain(scheduler::DrainRequest request,
                              Calls<v1::DrainResponse>::Call call) {
  return loop_.TryPostFirst([this, request, call] {
    const uint64_t id = NextCall();
    drains_.Add(id, call);
    LogInfo(request.undo ? "drain undone" : "drain ordered", {{"instance", request.instance.value},
                                                              {"router", request.router},
                                                              {"force", request.force}});
    Handle(scheduler::DrainCalled{{id}, request});
  });
}

OrchestratorShell::CopyPtr OrchestratorShell::FreshCopy() const {
  std::lock_guard lock(copy_mutex_);
  const bool fresh = copy_ != nullptr && MonotonicUs() < copy_->taken_us + kCopyAgeUs;
  return fresh ? copy_ : nullptr;
}

OrchestratorShell::CopyPtr OrchestratorShell::MakeCopy() {
  if (CopyPtr fresh = FreshCopy()) return fresh;  // several asked at once
  const int64_t now = MonotonicUs();
  auto copy = std::make_shared<Copy>(Copy{core_.Snapshot(now), checked_, now, {}});
  FillModels(copy->snapshot, &copy->models);
  copies_made_.fetch_add(1);
  std::lock_guard lock(copy_mutex_);
  copy_ = copy;
  return copy;
}

void OrchestratorShell::DropCopy() {
  std::lock_guard lock(copy_mutex_);
  copy_ = nullptr;
}

OrchestratorShell::CopyPtr OrchestratorShell::Look() {
  CopyPtr copy = FreshCopy();
  if (copy == nullptr) loop_.RunAndWait([this, &copy] { copy = MakeCopy(); });
  return copy;
}

bool OrchestratorShell::LookLater(std::function<void(const Copy&)> look) {
  if (const CopyPtr fresh = FreshCopy()) {
    look(*fresh);
    return true;
  }
  return loop_.TryPost([this, look = std::move(look)] { look(*MakeCopy()); });
}

bool OrchestratorShell::Count(
    const std::function<void(const scheduler::OrchestratorSnapshot&, const absl::Status&)>& look) {
  return loop_.RunAndWait([this, &look] { look(core_.Totals(), checked_); });
}

absl::Status OrchestratorShell::CheckInvariants() {
  absl::Status found = absl::UnavailableError("stopping");
  loop_.RunAndWait([this, &found] {
    const int64_t now = MonotonicUs();
    if (checked_us_ < 0 || now >= checked_us_ + kCheckSpacingUs) {
      checked_ = core_.CheckInvariants();
      checked_us_ = now;
      checks_made_.fetch_add(1);
      DropCopy();
    }
    found = checked_;
  });
  return found;
}

bool OrchestratorShell::ListLater(scheduler::RequestOrder order, size_t limit,
                                  std::function<void(const Explanations&)> answer) {
  return loop_.TryPost([this, order, limit, answer = std::move(answer)] {
    answer(core_.Requests(order, limit, MonotonicUs()));
  });
}

bool OrchestratorShell::ExplainLater(std::string request,
                                     std::function<void(const Explanations&)> answer) {
  return loop_.TryPost([this, request = std::move(request), answer = std::move(answer)] {
    answer(core_.Explain(request, MonotonicUs()));
  });
}

void OrchestratorShell::ReplaceTables(scheduler::PlanningTables tables) {
  loop_.Post(
      [this, tables = std::move(tables)] { Handle(scheduler::ReplacePlanningTables{tables}); });
}

void OrchestratorShell::Handle(const scheduler::OrchestratorEvent& event) {
  for (scheduler::OrchestratorEffect& effect : core_.Handle(event, MonotonicUs())) {
    std::visit([this](const auto& e) { On(e); }, effect);
  }
}

void OrchestratorShell::On(const scheduler::SendPlanUpdate& effect) {
  const auto it = plans_.find(effect.call.value);
  if (it == plans_.end()) return;
  if (const auto* failed = std::get_if<scheduler::Failed>(&effect.update)) {
    LogWarning("request failed", {{"request_id", ToString(effect.id)},
                                  {"reason", std::string(failed->status.message())}});
  }
  it->second->Write(ToProto(effect.update));
}

void OrchestratorShell::On(const scheduler::EndSubmit& effect) {
  const auto it = plans_.find(effect.call.value);
  if (it == plans_.end()) return;
  it->second->Close(grpc::Status::OK);
  plans_.erase(it);
}

void OrchestratorShell::On(const scheduler::AnswerPlaceDecode& effect) {
  v1::OrchestratorMessage message;
  *message.mutable_decode_placed() = ToProto(effect);
  Send(effect.call.value, std::move(message));
}

void OrchestratorShell::On(const scheduler::AnswerRegister& effect) {
  DropCopy();
  const auto it = workers_.find(effect.call.value);
  if (!effect.reply.status.ok()) {
    LogWarning("registration refused", {{"reason", std::string(effect.reply.status.message())}});
    return CloseWorker(effect.call.value, effect.reply.status);
  }
  if (it == workers_.end()) return;  // it has ended; the core hears of that next
  connected_[effect.reply.instance] = effect.call.value;
  it->second.instance = effect.reply.instance;
  v1::OrchestratorMessage message;
  *message.mutable_welcome() = ToProto(effect.reply);
  Send(effect.call.value, std::move(message));
}

void OrchestratorShell::On(const scheduler::AnswerReport& effect) {
  if (!effect.reply.status.ok()) return DropWorker(effect.call.value, effect.reply.status);
  v1::OrchestratorMessage message;
  *message.mutable_report_taken() = ToProto(effect.reply);
  Send(effect.call.value, std::move(message));
}

void OrchestratorShell::On(const scheduler::AnswerUnregister& effect) {
  DropCopy();
  v1::OrchestratorMessage message;
  message.mutable_goodbye_taken();
  Send(effect.call.value, std::move(message));
  const auto it = workers_.find(effect.call.value);
  if (it != workers_.end()) it->second.instance = {};  // nothing more is expected on the stream
}

void OrchestratorShell::On(const scheduler::CloseWorker& effect) {
  CloseWorker(effect.call.value, effect.status);
}

void OrchestratorShell::On(const scheduler::AnswerRouterReport& effect) {
  router_reports_.Answer(effect.call.value, grpc::Status::OK,
                         [&](v1::RouterReportResponse* r) { *r = ToProto(effect.reply); });
}

void OrchestratorShell::On(const scheduler::AnswerDrain& effect) {
  DropCopy();
  if (!effect.reply.status.ok()) {
    LogWarning("drain refused", {{"reason", std::string(effect.reply.status.message())}});
  }
  drains_.Answer(effect.call.value, ToGrpc(effect.reply.status), [](v1::DrainResponse*) {});
}

void OrchestratorShell::On(const scheduler::CallAssign& effect) {
  v1::OrchestratorMessage message;
  *message.mutable_assign() = ToProto(effect.request);
  Send(effect.instance, std::move(message));
}

void OrchestratorShell::On(const scheduler::CallStart& effect) {
  v1::OrchestratorMessage message;
  *message.mutable_start() = ToProto(effect.request);
  Send(effect.instance, std::move(message));
}

void OrchestratorShell::On(const scheduler::CallAnnounce& effect) {
  v1::OrchestratorMessage message;
  *message.mutable_announce() = ToProto(effect.request);
  Send(effect.instance, std::move(message));
}

void OrchestratorShell::On(const scheduler::CallWithdraw& effect) {
  v1::OrchestratorMessage message;
  *message.mutable_withdraw() = ToProto(effect.request);
  Send(effect.instance, std::move(message));
}

void OrchestratorShell::On(const scheduler::CallDrainOrder& effect) {
  v1::OrchestratorMessage message;
  *message.mutable_drain_order() = ToProto(effect.request);
  Send(effect.instance, std::move(message));
}

void OrchestratorShell::On(const scheduler::CallCancel& effect) {
  v1::OrchestratorMessage message;
  *message.mutable_cancel() = ToProto(effect.request);
  Send(effect.instance, std::move(message));
}

}  // namespace skein::services
