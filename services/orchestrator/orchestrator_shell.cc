#include "services/orchestrator/orchestrator_shell.h"

#include <utility>

#include "proto/decode_worker.grpc.pb.h"
#include "proto/prefill_worker.grpc.pb.h"
#include "services/base/log.h"
#include "services/codec/answer.h"
#include "services/codec/codec.h"
#include "services/orchestrator/model_list.h"

namespace skein::services {
namespace {

using DecodeWorkerMethods = v1::DecodeWorker::StubInterface::async_interface;
using PrefillWorkerMethods = v1::PrefillWorker::StubInterface::async_interface;

}  // namespace

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
  begins_.AbortAll(gone);
  registers_.AbortAll(gone);
  reports_.AbortAll(gone);
  unregisters_.AbortAll(gone);
  router_reports_.AbortAll(gone);
  drains_.AbortAll(gone);
  for (auto& [call, stream] : plans_) stream->Close(gone);
  plans_.clear();
  calls_.CancelAndWait();
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

bool OrchestratorShell::BeginPrefill(scheduler::BeginPrefillRequest request,
                                     Calls<v1::BeginPrefillResponse>::Call call) {
  return loop_.TryPost([this, request, call] {
    const uint64_t id = NextCall();
    begins_.Add(id, call);
    Handle(scheduler::BeginPrefillCalled{{id}, request});
  });
}

bool OrchestratorShell::Register(scheduler::RegisterRequest request,
                                 Calls<v1::RegisterResponse>::Call call) {
  return loop_.TryPostFirst([this, request = std::move(request), call] {
    const uint64_t id = NextCall();
    registers_.Add(id, call);
    registering_[id] = request.identity.role;
    LogInfo("instance registers",
            {{"instance_role",
              request.identity.role == scheduler::Role::kPrefill ? "prefill" : "decode"},
             {"model", request.identity.model},
             {"endpoint", request.identity.endpoint}});
    Handle(scheduler::RegisterCalled{{id}, request});
  });
}

bool OrchestratorShell::Report(scheduler::ReportRequest request,
                               Calls<v1::ReportResponse>::Call call) {
  return loop_.TryPostFirst([this, request = std::move(request), call] {
    const uint64_t id = NextCall();
    reports_.Add(id, call);
    Handle(scheduler::ReportCalled{{id}, request});
  });
}

bool OrchestratorShell::Unregister(scheduler::UnregisterRequest request,
                                   Calls<v1::UnregisterResponse>::Call call) {
  return loop_.TryPostFirst([this, request, call] {
    const uint64_t id = NextCall();
    unregisters_.Add(id, call);
    LogInfo("instance unregisters", {{"instance", request.instance.value}});
    Handle(scheduler::UnregisterCalled{{id}, request});
  });
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

void OrchestratorShell::On(const scheduler::AnswerBeginPrefill& effect) {
  begins_.Answer(effect.call.value, ToGrpc(effect.reply.status),
                 [&](v1::BeginPrefillResponse* r) { *r = ToProto(effect.reply.placed); });
}

void OrchestratorShell::On(const scheduler::AnswerRegister& effect) {
  const auto role = registering_.extract(effect.call.value);
  DropCopy();
  if (effect.reply.status.ok() && !role.empty()) roles_[effect.reply.instance] = role.mapped();
  if (!effect.reply.status.ok()) {
    LogWarning("registration refused", {{"reason", std::string(effect.reply.status.message())}});
  }
  registers_.Answer(effect.call.value, ToGrpc(effect.reply.status),
                    [&](v1::RegisterResponse* r) { *r = ToProto(effect.reply); });
}

void OrchestratorShell::On(const scheduler::AnswerReport& effect) {
  reports_.Answer(effect.call.value, ToGrpc(effect.reply.status),
                  [&](v1::ReportResponse* r) { *r = ToProto(effect.reply); });
}

void OrchestratorShell::On(const scheduler::AnswerUnregister& effect) {
  DropCopy();
  unregisters_.Answer(effect.call.value, ToGrpc(effect.reply.status),
                      [](v1::UnregisterResponse*) {});
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
  CallUnary<v1::PrefillWorker>(
      "prefill-worker", channels_.Get(effect.endpoint), &PrefillWorkerMethods::Assign, &calls_,
      ToProto(effect.request), effect.timeout_us,
      [this, instance = effect.instance, id = effect.request.spec->id, epoch = effect.request.epoch,
       sequence = effect.request.sequence](absl::Status status, const v1::AssignResponse&) {
        loop_.Post([this, reply = scheduler::AssignReplied{
                              instance, id, epoch, {status}, sequence}] { Handle(reply); });
      });
}

void OrchestratorShell::On(const scheduler::CallStart& effect) {
  CallUnary<v1::PrefillWorker>(
      "prefill-worker", channels_.Get(effect.endpoint), &PrefillWorkerMethods::Start, &calls_,
      ToProto(effect.request), effect.timeout_us,
      [this, instance = effect.instance, id = effect.request.id, epoch = effect.request.epoch](
          absl::Status status, const v1::StartResponse&) {
        loop_.Post([this, reply = scheduler::StartReplied{instance, id, epoch, {status}}] {
          Handle(reply);
        });
      });
}

void OrchestratorShell::On(const scheduler::CallReserve& effect) {
  CallUnary<v1::DecodeWorker>(
      "decode-worker", channels_.Get(effect.endpoint), &DecodeWorkerMethods::Reserve, &calls_,
      ToProto(effect.request), effect.timeout_us,
      [this, instance = effect.instance, id = effect.request.spec->id,
       epoch = effect.request.epoch](absl::Status status, const v1::ReserveResponse& response) {
        loop_.Post([this, reply = scheduler::ReserveReplied{
                              instance, id, epoch, AnswerOf("decode-worker", status, response)}] {
          Handle(reply);
        });
      });
}

template <typename Worker>
void OrchestratorShell::Cancel(const scheduler::CallCancel& effect) {
  CallUnary<Worker>(
      "worker", channels_.Get(effect.endpoint), &Worker::StubInterface::async_interface::Cancel,
      &calls_, ToProto(effect.request), effect.timeout_us,
      [this, instance = effect.instance, id = effect.request.id, epoch = effect.request.epoch](
          absl::Status status, const v1::CancelResponse&) {
        loop_.Post([this, reply = scheduler::CancelReplied{instance, id, epoch, status}] {
          Handle(reply);
        });
      });
}

void OrchestratorShell::On(const scheduler::CallCancel& effect) {
  if (roles_[effect.instance] == scheduler::Role::kPrefill) {
    Cancel<v1::PrefillWorker>(effect);
  } else {
    Cancel<v1::DecodeWorker>(effect);
  }
}

}  // namespace skein::services
