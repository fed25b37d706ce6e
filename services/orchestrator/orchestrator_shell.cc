#include "services/orchestrator/orchestrator_shell.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "scheduler/vocabulary/check.h"
#include "services/codec/codec.h"
#include "services/log/log.h"
#include "services/log/log_limit.h"
#include "services/orchestrator/status_answers.h"
#include "services/rpc/status_map.h"

namespace skein::services {
using scheduler::CallId;

namespace {

// A permit is in force for so much longer than its request may take: its writer's calls are
// repeated.
constexpr int64_t kPermitSpareS = 60;

}  // namespace

OrchestratorShell::OrchestratorShell(const scheduler::OrchestratorConfig& config, size_t inbox,
                                     std::function<void(uint64_t)> store_generation)
    : CoreShell(inbox),
      store_generation_(std::move(store_generation)),
      config_(config),
      workers_(&loop_, kWorkerStreamsMax, "worker",
               {.message = [this](uint64_t call, scheduler::InstanceId instance,
                                  const auto& message) { return Take(call, instance, message); },
                .broke =
                    [this](uint64_t call, scheduler::InstanceId instance, const absl::Status& why) {
                      LogWarning(
                          "the stream of a worker ended",
                          {{"instance", instance.value}, {"reason", std::string(why.message())}});
                      Handle(scheduler::WorkerDisconnected{{call}});
                    },
                .admit = [this] { return Admit(); }}),
      routers_(
          &loop_, kRouterStreamsMax, "router",
          {.message = [this](uint64_t call, uint64_t router,
                             const auto& message) { return TakeFromRouter(call, router, message); },
           .broke =
               [this](uint64_t call, uint64_t router, const absl::Status& why) {
                 LogWarning("the stream of a router ended",
                            {{"router", router}, {"reason", std::string(why.message())}});
                 Handle(scheduler::RouterDisconnected{{call}});
               },
           .admit = [this] { return Admit(); }}),
      dials_([this](const scheduler::WorkerDialled& dialled) {
        loop_.PostFirst([this, dialled] { Handle(dialled); });
      }) {}

OrchestratorShell::~OrchestratorShell() { Stop(); }

void OrchestratorShell::StandBy(std::function<bool()> leads) {
  leads_ = std::move(leads);
  stands_by_ = true;
  StopCore();
}

void OrchestratorShell::Start() {
  if (!leads_) {
    times_led_.store(1);
    led_since_s_.store(std::time(nullptr));
    MakeSigner();
  }
  StartCore("orchestrator", config_, scheduler::OrchestratorTick{});
}

// The generation of its permits is that of its welcomes.
void OrchestratorShell::MakeSigner() {
  absl::StatusOr<PermitSigner> made = PermitSigner::Make();
  SKEIN_CHECK(made.ok());  // without random numbers nothing else works either
  signer_.emplace(*std::move(made));
}

void OrchestratorShell::Permit(scheduler::RequestId id, scheduler::Epoch epoch, int64_t deadline_us,
                               const scheduler::Placed& placed, v1::DecodePlace* out) {
  const int64_t wait_us = std::max(config_.request_deadline_us, deadline_us);
  const int64_t now_s = MonotonicUs() / 1'000'000;
  const absl::StatusOr<std::string> permit =
      signer_->Sign({.id = id,
                     .epoch = epoch,
                     .writer = placed.writer,
                     .decode = placed.incarnation,
                     .generation = generation_,
                     .issued_s = now_s,
                     .expires_s = now_s + wait_us / 1'000'000 + kPermitSpareS});
  if (permit.ok()) return out->set_permit(*permit);
  LogWarning("permit not signed",
             {{"request_id", ToString(id)}, {"reason", std::string(permit.status().message())}});
}

void OrchestratorShell::Lead(uint64_t generation) {
  loop_.RunAndWait([this, generation] {
    scheduler::OrchestratorConfig config = config_;
    config.generation = generation;
    MakeSigner();
    DropCopies();
    BeginCore(config, scheduler::OrchestratorTick{});
    for (const auto& [model, tables] : tables_) {  // "" first, which is for all
      Handle(scheduler::ReplacePlanningTables{tables, model});
    }
    times_led_.fetch_add(1);
    led_since_s_.store(std::time(nullptr));
    std::lock_guard lock(standing_mutex_);
    stands_by_ = false;
  });
}

void OrchestratorShell::StepDown(const std::string& why) {
  loop_.RunAndWait([this, &why] {
    {
      std::lock_guard lock(standing_mutex_);
      stands_by_ = true;
    }
    StopCore();
    core_.emplace(config_);
    DropCopies();
    const grpc::Status ended = ToGrpc(absl::AbortedError(why));
    drains_.AbortAll(ended);
    changes_.AbortAll(ended);
    // Who leads next is not known yet; those at the streams ask the others first.
    const grpc::Status stands_by = ToGrpc(StandbyError(""));
    workers_.CloseAll(stands_by);
    routers_.CloseAll(stands_by);
  });
}

void OrchestratorShell::Follow(const std::string& leader) {
  std::lock_guard lock(standing_mutex_);
  leader_ = leader;
}

absl::Status OrchestratorShell::Standing() const {
  const bool leads = !leads_ || leads_();
  std::lock_guard lock(standing_mutex_);
  return stands_by_ || !leads ? StandbyError(leader_) : absl::OkStatus();
}

absl::Status OrchestratorShell::Admit() {
  absl::Status standing = Standing();
  if (!standing.ok()) hearing_.somebody();
  return standing;
}

void OrchestratorShell::Stop() {
  loop_.Stop();
  dials_.Stop();
  const grpc::Status gone = ToGrpc(absl::UnavailableError("the orchestrator is stopping"));
  drains_.AbortAll(gone);
  changes_.AbortAll(gone);
  workers_.CloseAll(gone);
  routers_.CloseAll(gone);
}

absl::Status OrchestratorShell::MayDrain(const scheduler::DrainRequest& request,
                                         const DrainCaller& caller) const {
  // Routers pass on what operators order at their consoles.
  if (caller.roles.Meets({tls::Role::kRouter, tls::Role::kOperator})) return absl::OkStatus();
  if (workers_.CameOver(request.instance, caller.connection)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("a certificate for ", tls::NamesOf(caller.roles),
                   " may drain only the instance that has registered over the same connection"));
}

bool OrchestratorShell::Drain(scheduler::DrainRequest request, DrainCaller caller,
                              Calls<v1::DrainResponse>::Call call) {
  return loop_.TryPostFirst([this, request, caller = std::move(caller), call] {
    absl::Status may = Standing();
    if (may.ok()) may = MayDrain(request, caller);
    if (absl::IsPermissionDenied(may)) {
      LogWarning("drain refused", {{"instance", request.instance.value},
                                   {"router", request.router},
                                   {"remote", caller.connection},
                                   {"reason", std::string(may.message())}});
    }
    if (!may.ok()) return call.reactor->Finish(ToGrpc(may));
    const uint64_t id = NextCall();
    drains_.Add(id, call);
    LogInfo(request.undo ? "drain undone" : "drain ordered", {{"instance", request.instance.value},
                                                              {"router", request.router},
                                                              {"force", request.force}});
    Handle(scheduler::DrainCalled{{id}, request});
  });
}

bool OrchestratorShell::ChangeFormation(scheduler::orchestrator::FormationOrder order,
                                        Calls<v1::ChangeFormationResponse>::Call call) {
  return loop_.TryPostFirst([this, order = std::move(order), call] {
    if (absl::Status standing = Standing(); !standing.ok()) {
      return call.reactor->Finish(ToGrpc(standing));
    }
    const uint64_t id = NextCall();
    changes_.Add(id, call);
    Handle(scheduler::FormationCalled{{id}, order});
  });
}

template <typename T>
std::shared_ptr<const T> OrchestratorShell::Shared<T>::Fresh() const {
  std::lock_guard lock(mutex_);
  const bool fresh = copy_ != nullptr && MonotonicUs() < copy_->taken_us + kCopyAgeUs;
  return fresh ? copy_ : nullptr;
}

template <typename T>
std::shared_ptr<const T> OrchestratorShell::Shared<T>::Set(T copy) {
  const Ptr set = std::make_shared<const T>(std::move(copy));
  std::lock_guard lock(mutex_);
  copy_ = set;
  return set;
}

template <typename T>
void OrchestratorShell::Shared<T>::Drop() {
  std::lock_guard lock(mutex_);
  copy_ = nullptr;
}

OrchestratorShell::CopyPtr OrchestratorShell::MakeCopy() {
  if (CopyPtr fresh = copy_.Fresh()) return fresh;  // several asked at once
  copies_made_.fetch_add(1);
  const int64_t now = MonotonicUs();
  return copy_.Set({core_->Snapshot(now), invariants(), now});
}

OrchestratorShell::Shared<OrchestratorShell::Models>::Ptr OrchestratorShell::MakeModels() {
  if (auto fresh = models_.Fresh()) return fresh;
  Models models{{}, MonotonicUs()};
  FillModels(core_->Totals(), &models.answer);
  models.answer.set_instance_lease_us(static_cast<uint64_t>(config_.instance_lease_us));
  return models_.Set(std::move(models));
}

void OrchestratorShell::DropCopies() {
  copy_.Drop();
  models_.Drop();
}

OrchestratorShell::CopyPtr OrchestratorShell::Look() {
  CopyPtr copy = copy_.Fresh();
  if (copy == nullptr) loop_.RunAndWait([this, &copy] { copy = MakeCopy(); });
  return copy;
}

bool OrchestratorShell::LookLater(std::function<void(const Copy&)> look) {
  if (const CopyPtr fresh = copy_.Fresh()) {
    look(*fresh);
    return true;
  }
  return loop_.TryPost([this, look = std::move(look)] { look(*MakeCopy()); });
}

bool OrchestratorShell::ListModelsLater(std::function<void(const v1::ListModelsResponse&)> look) {
  if (const auto fresh = models_.Fresh()) {
    look(fresh->answer);
    return true;
  }
  return loop_.TryPost([this, look = std::move(look)] { look(MakeModels()->answer); });
}

std::future<std::optional<OrchestratorShell::Counts>> OrchestratorShell::StartCount() {
  return StartCopy([this] { return core_->Totals(); });
}

absl::Status OrchestratorShell::CheckParts() {
  checks_made_.fetch_add(1);
  DropCopies();
  return absl::OkStatus();
}

bool OrchestratorShell::ListLater(scheduler::RequestOrder order, size_t limit,
                                  std::function<void(const Explanations&)> answer) {
  return loop_.TryPost([this, order, limit, answer = std::move(answer)] {
    answer(core_->Requests(order, limit, MonotonicUs()));
  });
}

bool OrchestratorShell::ExplainLater(std::string request,
                                     std::function<void(const Explanations&)> answer) {
  return loop_.TryPost([this, request = std::move(request), answer = std::move(answer)] {
    answer(core_->Explain(request, MonotonicUs()));
  });
}

void OrchestratorShell::ReplaceTables(scheduler::PlanningTables tables, std::string model) {
  loop_.Post([this, event = scheduler::ReplacePlanningTables{std::move(tables),
                                                             std::move(model)}]() mutable {
    if (event.model.empty()) tables_.clear();
    tables_[event.model] = event.tables;
    Handle(std::move(event));
  });
}

void OrchestratorShell::On(const scheduler::SendPlanUpdate& effect) {
  if (const auto* failed = std::get_if<scheduler::Failed>(&effect.update)) {
    const std::initializer_list<LogField> fields = {
        {"request_id", ToString(effect.id)}, {"reason", std::string(failed->status.message())}};
    if (absl::IsResourceExhausted(failed->status)) {  // an overload: a line for each is a flood
      LogLimited("refused", Level::kWarning, "request failed", fields);
    } else {
      LogWarning("request failed", fields);
    }
  }
  v1::OrchestratorRouterMessage message;
  *message.mutable_update()->mutable_id() = ToProto(effect.id);
  *message.mutable_update()->mutable_update() = ToProto(effect.update);
  routers_.SendTo(effect.id.router, std::move(message));
}

void OrchestratorShell::On(const scheduler::WelcomeRouter& effect) {
  DropCopies();
  const uint64_t call = effect.call.value;
  if (!effect.welcome.status.ok()) {
    LogWarning("router refused", {{"router", effect.router},
                                  {"reason", std::string(effect.welcome.status.message())}});
    return routers_.Close(call, effect.welcome.status);
  }
  if (!routers_.Name(call, effect.router, effect.welcome.generation.number)) return;
  v1::OrchestratorRouterMessage message;
  *message.mutable_welcome() = ToProto(effect.welcome);
  if (draining()) message.mutable_welcome()->mutable_cell()->clear_models();
  routers_.Send(call, std::move(message));
}

void OrchestratorShell::On(const scheduler::AnswerRouterReport& effect) {
  v1::OrchestratorRouterMessage message;
  *message.mutable_report_taken()->mutable_cell() = ToProto(effect.cell);
  if (draining()) message.mutable_report_taken()->mutable_cell()->clear_models();
  routers_.Send(effect.call.value, std::move(message));
}

void OrchestratorShell::On(const scheduler::AnswerRouterGoodbye& effect) {
  DropCopies();
  v1::OrchestratorRouterMessage message;
  message.mutable_goodbye_taken();
  routers_.Send(effect.call.value, std::move(message));
  routers_.Unname(effect.call.value);
}

void OrchestratorShell::On(const scheduler::OrderRouterDrain& effect) {
  v1::OrchestratorRouterMessage message;
  *message.mutable_drain() = ToProto(effect);
  routers_.Send(effect.call.value, std::move(message));
}

void OrchestratorShell::On(const scheduler::CloseRouter& effect) {
  routers_.Close(effect.call.value, effect.status);
}

void OrchestratorShell::On(const scheduler::StoreGeneration& effect) {
  LogWarning("a worker or router follows a newer orchestrator; taking the next generation",
             {{"generation", effect.generation}});
  store_generation_(effect.generation);
}

void OrchestratorShell::On(const scheduler::AnswerPlaceDecode& effect) {
  v1::OrchestratorMessage message;
  *message.mutable_decode_placed() = ToProto(effect);
  if (effect.reply.status.ok()) {
    Permit(effect.id, effect.epoch, 0, effect.reply.placed,
           message.mutable_decode_placed()->mutable_placed());
  }
  workers_.Send(effect.call.value, std::move(message));
}

void OrchestratorShell::On(const scheduler::AnswerRegister& effect) {
  DropCopies();
  const uint64_t call = effect.call.value;
  if (!effect.reply.status.ok()) {
    LogWarning("registration refused", {{"reason", std::string(effect.reply.status.message())}});
    return workers_.Close(call, effect.reply.status);
  }
  if (!workers_.Name(call, effect.reply.instance, effect.reply.generation.number)) return;
  v1::OrchestratorMessage message;
  *message.mutable_welcome() = ToProto(effect.reply);
  generation_ = effect.reply.generation.number;
  message.mutable_welcome()->set_permit_key(signer_->public_key());
  workers_.Send(effect.call.value, std::move(message));
}

void OrchestratorShell::On(const scheduler::AnswerReport& effect) {
  if (!effect.reply.status.ok()) return workers_.Drop(effect.call.value, effect.reply.status);
  v1::OrchestratorMessage message;
  *message.mutable_report_taken() = ToProto(effect.reply);
  if (!kept_traces_.empty()) {
    for (std::string& trace : kept_traces_.TakeFor(effect.call.value)) {
      message.mutable_report_taken()->add_keep_traces(std::move(trace));
    }
  }
  workers_.Send(effect.call.value, std::move(message));
}

void OrchestratorShell::On(const scheduler::AnswerUnregister& effect) {
  DropCopies();
  v1::OrchestratorMessage message;
  message.mutable_goodbye_taken();
  workers_.Send(effect.call.value, std::move(message));
  workers_.Unname(effect.call.value);
}

void OrchestratorShell::On(const scheduler::CloseWorker& effect) {
  workers_.Close(effect.call.value, effect.status);
}

void OrchestratorShell::On(const scheduler::AnswerDrain& effect) {
  DropCopies();
  if (!effect.reply.status.ok()) {
    LogWarning("drain refused", {{"reason", std::string(effect.reply.status.message())}});
  }
  drains_.Answer(effect.call.value, ToGrpc(effect.reply.status), [](v1::DrainResponse*) {});
}

void OrchestratorShell::On(const scheduler::AnswerFormation& effect) {
  DropCopies();
  if (!effect.status.ok()) {
    LogWarning("formation not changed", {{"reason", std::string(effect.status.message())}});
  }
  changes_.Answer(effect.call.value, ToGrpc(effect.status), [&](v1::ChangeFormationResponse* out) {
    for (const std::string& one : effect.done) out->add_done(one);
  });
}

void OrchestratorShell::On(const scheduler::FormationSwitched& effect) {
  DropCopies();
  watch_formations_(effect);
  using scheduler::orchestrator::FormationName;
  const scheduler::orchestrator::SwitchEnded& ended = effect.ended;
  LogInfo("formation switched", {{"group", effect.group},
                                 {"formation_epoch", ended.epoch},
                                 {"from", FormationName(ended.from, ended.shared)},
                                 {"to", FormationName(ended.to, ended.shared)},
                                 {"own", std::string(ToString(ended.own))},
                                 {"outcome", std::string(NameOf(ended.outcome))},
                                 {"took_us", ended.took_us},
                                 {"drain_us", ended.drain_us},
                                 {"cut_over_us", ended.cut_over_us},
                                 {"ordered_because", ended.why},
                                 {"reason", ended.reason}});
}

void OrchestratorShell::On(const scheduler::SharedModeChanged& effect) {
  DropCopies();
  watch_modes_(effect);
  using scheduler::orchestrator::FormationName;
  const scheduler::orchestrator::ModeChanged& changed = effect.changed;
  const auto size = static_cast<int32_t>(changed.members.size());
  LogInfo("mode of shared weights changed", {{"group", effect.group},
                                             {"formation_epoch", changed.epoch},
                                             {"from", FormationName(size, changed.from)},
                                             {"to", FormationName(size, changed.to)},
                                             {"outcome", std::string(NameOf(changed.outcome))},
                                             {"took_us", changed.took_us},
                                             {"ordered_because", changed.why},
                                             {"reason", changed.reason}});
}

void OrchestratorShell::On(const scheduler::CallAssign& effect) {
  v1::OrchestratorMessage message;
  const scheduler::AssignOrder& request = effect.request;
  *message.mutable_assign() = ToProto(request);
  if (request.placed.has_value()) {
    Permit(request.spec->id, request.epoch, request.spec->deadline_us, *request.placed,
           message.mutable_assign()->mutable_placed());
  }
  SendTo(effect.instance, std::move(message));
}

void OrchestratorShell::On(const scheduler::CallStart& effect) {
  v1::OrchestratorMessage message;
  *message.mutable_start() = ToProto(effect.request);
  Permit(effect.request.id, effect.request.epoch, 0, effect.request.placed,
         message.mutable_start()->mutable_placed());
  SendTo(effect.instance, std::move(message));
}

void OrchestratorShell::On(const scheduler::CallAnnounce& effect) {
  v1::OrchestratorMessage message;
  *message.mutable_announce() = ToProto(effect.request);
  SendTo(effect.instance, std::move(message));
}

void OrchestratorShell::On(const scheduler::CallWithdraw& effect) {
  v1::OrchestratorMessage message;
  *message.mutable_withdraw() = ToProto(effect.request);
  SendTo(effect.instance, std::move(message));
}

void OrchestratorShell::On(const scheduler::CallDrainOrder& effect) {
  v1::OrchestratorMessage message;
  *message.mutable_drain_order() = ToProto(effect.request);
  SendTo(effect.instance, std::move(message));
}

void OrchestratorShell::On(const scheduler::CallPeer& effect) {
  v1::OrchestratorMessage message;
  *message.mutable_peer() = ToProto(effect.request);
  SendTo(effect.instance, std::move(message));
}

void OrchestratorShell::On(const scheduler::CallGroup& effect) {
  v1::OrchestratorMessage message;
  *message.mutable_group() = ToProto(effect.request);
  SendTo(effect.instance, std::move(message));
}

void OrchestratorShell::On(const scheduler::CallPrepareFormation& effect) {
  v1::OrchestratorMessage message;
  *message.mutable_prepare_formation() = ToProto(effect.request);
  SendTo(effect.instance, std::move(message));
}

void OrchestratorShell::On(const scheduler::CallCommitFormation& effect) {
  v1::OrchestratorMessage message;
  *message.mutable_commit_formation() = ToProto(effect.request);
  SendTo(effect.instance, std::move(message));
}

void OrchestratorShell::On(const scheduler::CallEndFormation& effect) {
  v1::OrchestratorMessage message;
  *message.mutable_end_formation() = ToProto(effect.request);
  SendTo(effect.instance, std::move(message));
}

void OrchestratorShell::On(const scheduler::CallMode& effect) {
  v1::OrchestratorMessage message;
  *message.mutable_mode_order() = ToProto(effect.request);
  SendTo(effect.instance, std::move(message));
}

void OrchestratorShell::On(const scheduler::CallCancel& effect) {
  v1::OrchestratorMessage message;
  *message.mutable_cancel() = ToProto(effect.request);
  SendTo(effect.instance, std::move(message));
}

}  // namespace skein::services
