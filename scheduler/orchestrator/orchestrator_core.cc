#include "scheduler/orchestrator/orchestrator_core.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "scheduler/base/plant.h"
#include "scheduler/fairness/tenant_places.h"
#include "scheduler/orchestrator/orchestrator_impl.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

// How often a successor looks whether the instances have come.
constexpr TimeUs kLookAgainUs = 20 * kMillisecondUs;

bool ComesAnew(const OrchestratorEvent& event) {
  return std::holds_alternative<RegisterCalled>(event) ||
         std::holds_alternative<RouterConnected>(event);
}

// Of a request that ends: the instances whose reports may still tell that its KV was taken, and how
// it ended.
AwaitedReports AwaitedReportsOf(const orchestrator::Request& request) {
  AwaitedReports reports;
  if (request.state != orchestrator::State::kPlaced || !request.IsPlanWhole()) return reports;
  reports.epoch = request.epoch;
  reports.decode = request.decode;
  for (const orchestrator::Member& member : request.members) {
    if (member.here()) reports.prefill.insert(member.instance);
  }
  return reports;
}

}  // namespace

OrchestratorCore::OrchestratorCore(const OrchestratorConfig& config)
    : impl_(std::make_unique<Impl>(config)) {}
OrchestratorCore::~OrchestratorCore() = default;
std::vector<OrchestratorEffect> OrchestratorCore::Handle(const OrchestratorEvent& event,
                                                         TimeUs now) {
  return impl_->Handle(event, now);
}
TimeUs OrchestratorCore::NextDeadline() const { return impl_->NextDeadline(); }
absl::Status OrchestratorCore::CheckInvariants() const { return impl_->CheckInvariants(); }
OrchestratorSnapshot OrchestratorCore::Totals() const { return impl_->Totals(); }
OrchestratorSnapshot OrchestratorCore::Snapshot(TimeUs now) const { return impl_->Snapshot(now); }
std::string_view OrchestratorCore::StateOf(RequestId id) const { return impl_->StateOf(id); }
std::vector<Explanation> OrchestratorCore::Explain(const std::string& request, TimeUs now) const {
  return impl_->Explain(request, now);
}
std::vector<Explanation> OrchestratorCore::Requests(RequestOrder order, size_t limit,
                                                    TimeUs now) const {
  return impl_->List(order, limit, now);
}

OrchestratorCore::Impl::Impl(const OrchestratorConfig& config)
    : config_(config),
      hearing_(config.instance_lease_us),
      numbers_(config.generation),
      registry_(FirstNumberOf(config.generation), config.instance_lease_us,
                {.silent_us = config.instance_silent_us,
                 .from_revision = std::min(config.build.protocol.newest, Registry::kReportsOften)}),
      pools_(config.planning, &registry_),
      gone_(config.max_gone, config.gone_kept_us),
      refused_peers_(config.max_refused_peers, config.refused_peer_kept_us),
      groups_(config.gone_kept_us),
      explanations_(config.max_explanations),
      decode_({.place_decode_wait_us = config.place_decode_wait_us,
               .urgent_priority = config.formations.policy.dedicated_priority},
              {.requests = &requests_,
               .registry = &registry_,
               .pools = &pools_,
               .sender = &sender_,
               .sharing = &sharing_,
               .explanations = &explanations_,
               .ends = this,
               .effects = &effects_}),
      formations_(config.formations, {.requests = &requests_,
                                      .registry = &registry_,
                                      .groups = &groups_,
                                      .needs = &needs_,
                                      .decode = &decode_,
                                      .switches = explanations_.switches(),
                                      .sender = &sender_,
                                      .effects = &effects_}),
      prefill_(config.default_tokens_per_second, config.instance_lease_us,
               {.requests = &requests_,
                .registry = &registry_,
                .numbers = &numbers_,
                .pools = &pools_,
                .decode = &decode_,
                .sender = &sender_,
                .explanations = &explanations_,
                .ends = this,
                .effects = &effects_}),
      longs_(config.formations.long_wait_us, {.requests = &requests_,
                                              .registry = &registry_,
                                              .groups = &groups_,
                                              .formations = &formations_,
                                              .needs = &needs_,
                                              .numbers = &numbers_,
                                              .prefill = &prefill_,
                                              .sender = &sender_,
                                              .ends = this,
                                              .effects = &effects_}),
      replanner_({.replans_max = config.max_replans, .lease_us = config.instance_lease_us},
                 {.requests = &requests_,
                  .registry = &registry_,
                  .numbers = &numbers_,
                  .prefill = &prefill_,
                  .longs = &longs_,
                  .decode = &decode_,
                  .sender = &sender_,
                  .sharing = &sharing_,
                  .explanations = &explanations_,
                  .ends = this,
                  .effects = &effects_}),
      router_side_(config.instance_lease_us, config.max_requests,
                   {.requests = &requests_,
                    .registry = &registry_,
                    .explanations = &explanations_,
                    .gone = &gone_,
                    .ends = this,
                    .effects = &effects_,
                    .sender = &sender_,
                    .build = config.build}),
      worker_side_({.lease_us = config.instance_lease_us,
                    .pace = config.pace,
                    .hung_step_us = config.hung_step_us},
                   {.requests = &requests_,
                    .registry = &registry_,
                    .numbers = &numbers_,
                    .prefill = &prefill_,
                    .decode = &decode_,
                    .replanner = &replanner_,
                    .routers = &router_side_,
                    .sender = &sender_,
                    .explanations = &explanations_,
                    .gone = &gone_,
                    .refused = &refused_peers_,
                    .groups = &groups_,
                    .needs = &needs_,
                    .formations = &formations_,
                    .ends = this,
                    .effects = &effects_,
                    .build = config.build}) {
  formations_.NumberFrom(numbers_.first_epoch());
  const absl::Status policy = CheckFormationPolicy(config.formations.policy);
  SKEIN_CHECK_MSG(policy.ok(), std::string(policy.message()).c_str());
  if (!pools_.plans()) return;
  const absl::Status valid = CheckPlanning(pools_.planning());
  SKEIN_CHECK_MSG(valid.ok(), std::string(valid.message()).c_str());
}

std::vector<OrchestratorEffect> OrchestratorCore::Impl::Handle(const OrchestratorEvent& event,
                                                               TimeUs now) {
  now_ = std::max(now_, now);
  effects_.clear();
  const bool begins = !std::exchange(started_, true) || (ComesAnew(event) && Streams() == 0);
  if (begins && MayHavePredecessor()) Settle();
  NoteHearing(event);
  std::visit(
      [this](const auto& e) {
        if constexpr (requires { router_side_.On(e, now_); }) {
          router_side_.On(e, now_);
        } else if constexpr (requires { worker_side_.On(e, now_); }) {
          worker_side_.On(e, now_);
        } else if constexpr (requires { decode_.On(e, now_); }) {
          decode_.On(e, now_);
        } else if constexpr (requires { formations_.On(e, now_); }) {
          formations_.On(e, now_);
        } else {
          On(e);
        }
      },
      event);
  RunTimers();
  decode_.PlaceWaiting(now_);
  longs_.PlaceWaiting(now_);
  prefill_.PlanParked(now_);
  prefill_.DecideRolling(now_);
  PlanOrphans();
  TellAccepted();
  prefill_.NoteStarts(now_);
  return std::move(effects_);
}

// Before anything else in a peer's first message has an effect: of an unknown revision, nothing in
// it is sure to mean what it says.
absl::Status OrchestratorCore::Impl::CheckBuild(RefusedPeer peer, const PeerBuild& build) {
  absl::Status status = CheckProtocol(build, peer.what, config_.build, "orchestrator");
  if (status.ok()) return status;
  peer.why = std::string(status.message());
  refused_peers_.Refuse(std::move(peer), now_);
  return status;
}

void OrchestratorCore::Impl::On(const RouterConnected& event) {
  const RouterIdentity& identity = event.hello.identity;
  absl::Status status = CheckBuild(
      {.what = "router", .endpoint = identity.endpoint, .version = identity.build.version},
      identity.build);
  if (status.ok()) status = Follow(event.hello.seen);
  if (status.ok()) {
    refused_peers_.Take(identity.endpoint);
    return router_side_.Connect(event, Own(), now_);
  }
  effects_.push_back(
      WelcomeRouter{event.call, event.hello.identity.router, {.status = std::move(status)}});
}

void OrchestratorCore::Impl::On(const RegisterCalled& event) {
  const WorkerIdentity& identity = event.request.identity;
  absl::Status status =
      CheckBuild({.what = identity.role == Role::kPrefill ? "prefill-worker" : "decode-worker",
                  .model = identity.model,
                  .endpoint = identity.endpoint,
                  .version = identity.build.version},
                 identity.build);
  if (status.ok()) status = Follow(event.request.seen);
  if (status.ok()) return worker_side_.Connect(event, Own(), now_);
  effects_.push_back(AnswerRegister{event.call, {.status = std::move(status)}});
}

// An operator's order to an instance or a router.
void OrchestratorCore::Impl::On(const DrainCalled& event) {
  const bool instance = event.request.instance != InstanceId{};
  absl::Status status =
      instance ? worker_side_.Drain(event.request, now_) : router_side_.Drain(event.request);
  effects_.push_back(AnswerDrain{event.call, {std::move(status)}});
}

void OrchestratorCore::Impl::On(const ReplacePlanningTables& event) {
  if (!pools_.plans()) return;
  PlanningConfig planning = pools_.planning();
  planning.tables = event.tables;
  if (CheckPlanning(planning).ok()) pools_.ReplaceTables(event.tables, event.model);
}

// Workers and routers have listened to another orchestrator, or to this one's predecessor: they
// listen to this one again under a higher generation, on new streams. Epochs of the generation
// before may be the other's, too.
absl::Status OrchestratorCore::Impl::Follow(const Generation& seen) {
  if (Own().MayFollow(seen) || SKEIN_PLANT(stale_epoch_accepted)) return absl::OkStatus();
  if (seen.number >= kGenerationMax - 1) {  // no peer would take the next one
    return absl::FailedPreconditionError(
        absl::StrCat("seen.number: ", seen.number, " is the last generation; none can follow it"));
  }
  numbers_.Begin(seen.number + 1);
  registry_.NumberFrom(numbers_.first_epoch());
  formations_.NumberFrom(numbers_.first_epoch());
  Settle();
  effects_.push_back(StoreGeneration{numbers_.generation()});
  const absl::Status why = absl::AbortedError("the orchestrator takes a higher generation");
  router_side_.CloseStreams(why, now_);
  worker_side_.CloseStreams(why);
  groups_.OrderAgain(now_);
  return absl::OkStatus();
}

void OrchestratorCore::Impl::On(const SubmitCalled& event) {
  const RequestId id = event.spec->id;
  router_side_.Heard(id.router, now_);
  const bool holds = router_side_.Holds(now_) || Settling() || FitsLater(event);
  if (!holds || requests_.Find(id) != nullptr) return Submit(event);
  const bool comes = !event.accepted && !router_side_.HasHeld(id);
  if (absl::Status room = HasRoom(); comes && !room.ok()) return Refuse(id, std::move(room));
  router_side_.Hold(event);
}

bool OrchestratorCore::Impl::ServesAll() const {
  const std::set<std::string>& models = registry_.models_seen();
  return !models.empty() &&
         std::all_of(models.begin(), models.end(), [this](const std::string& model) {
           return registry_.Pool(model, Role::kPrefill).size() > 0 &&
                  registry_.Pool(model, Role::kDecode).size() > 0;
         });
}

void OrchestratorCore::Impl::SubmitEarly() {
  if (router_side_.held() > 0 && !router_side_.Waits(now_) && Settling()) {
    return router_side_.HoldUntil(std::min(settled_by_us_, now_ + kLookAgainUs));
  }
  bool some_wait = false;
  for (const SubmitCalled& one : router_side_.TakeHeld(now_)) {
    if (FitsLater(one)) {
      router_side_.Hold(one);
      some_wait = true;
    } else {
      Submit(one);
    }
  }
  if (some_wait) router_side_.HoldUntil(std::min(settled_by_us_, now_ + kLookAgainUs));
}

// Nothing here says yet how much the instances hold together, and which models they serve.
bool OrchestratorCore::Impl::FitsLater(const SubmitCalled& event) {
  if (now_ >= settled_by_us_) return false;
  const absl::Status may = MaySubmit(event);
  if (absl::IsNotFound(may) || absl::IsInvalidArgument(may)) return true;
  const RequestHead& spec = *event.spec;
  const auto pool = registry_.Pool(spec.model, Role::kPrefill);
  if (pool.empty()) return true;
  const auto blocks = registry_.BlocksOfPool(spec.model, Role::kPrefill);
  const bool one = spec.want_prompt_logprobs || config_.planning == nullptr;
  return BlocksOf(pool.front()->identity.shape, PromptTokens(spec)) >
         (one ? blocks.largest : blocks.together);
}

void OrchestratorCore::Impl::Refuse(RequestId id, absl::Status status) {
  refused_ += absl::IsResourceExhausted(status) ? 1 : 0;
  router_side_.TellFailed(id, {std::move(status)});
}

void OrchestratorCore::Impl::Submit(const SubmitCalled& event) {
  const RequestId id = event.spec->id;
  if (const Request* known = requests_.Find(id)) return router_side_.TellState(*known);
  if (absl::Status status = MaySubmit(event); !status.ok()) return Refuse(id, std::move(status));
  submitted_.push_back(id);
  const TimeUs budget = event.spec->deadline_us;
  const TimeUs deadline_us = now_ + (budget > 0 ? budget : config_.request_deadline_us);
  Request& request = requests_.Add(event.spec, now_, deadline_us);
  request.shape = event.shape;
  request.explanation.id = id;
  request.explanation.names = event.spec->names;
  request.explanation.model = event.spec->model;
  request.explanation.prompt_tokens = PromptTokens(*request.spec);
  request.explanation.policy = pools_.plans() ? pools_.planning().policy.name : "none";
  orchestrator::LostAttempts::Lost lost = router_side_.TakeLost(id);
  request.lost_decodes = std::move(lost.decodes);
  request.kept_at = lost.kept_at;
  request.failures = orchestrator::EngineFailures(event.failed_engines);
  for (const auto& [engine, instance] : worker_side_.TakeEarlyFailures(id)) {
    request.failures.Fail(engine, instance);
  }
  explanations_.Begin(request);
  if (event.accepted) {
    explanations_.Note(id.attempt() > 0 ? Degraded::kResumed : Degraded::kSubmittedAnew, &request);
  }
  explanations_.NoteMoves(event.moves, &request);
  if (replanner_.FailSuspect(request)) return;
  if (longs_.IsLong(*event.spec)) return longs_.Plan(request);
  if (sharing_.Begin(request, now_)) return;
  prefill_.NoteArrival(event.spec->model, now_);
  prefill_.Plan(request, now_);
  const bool taken = requests_.Find(id) != nullptr;  // or no instance can ever compute it
  if (pools_.plans() && taken && !event.accepted) {
    effects_.push_back(PromptTaken{event.spec->model, PromptTokens(*event.spec)});
  }
}

void OrchestratorCore::Impl::PlanOrphans() {
  for (auto orphans = sharing_.TakeOrphans(); !orphans.empty(); orphans = sharing_.TakeOrphans()) {
    for (const RequestId id : orphans) {
      replanner_.GiveUpPlan(
          requests_.At(id),
          absl::UnavailableError("the answer's first choice has ended, or is decoded elsewhere"),
          now_);
    }
  }
}

void OrchestratorCore::Impl::TellAccepted() {
  for (const RequestId id : submitted_) {
    const Request* kept = requests_.Find(id);
    const bool waits = kept != nullptr && orchestrator::WaitsHere(*kept);
    if (waits) effects_.push_back(SendPlanUpdate{id, Accepted{kept->failures.failed()}});
  }
  submitted_.clear();
}

absl::Status OrchestratorCore::Impl::MaySubmit(const SubmitCalled& event) {
  const RequestHead& spec = *event.spec;
  if (spec.prompt_tokens <= 0) return absl::InvalidArgumentError("prompt: empty");
  if (spec.max_tokens < 0) return absl::InvalidArgumentError("max_tokens: negative");
  if (!registry_.KnowsModel(spec.model)) {
    return absl::NotFoundError(absl::StrCat("model ", spec.model, " is not served here"));
  }
  const absl::Status capacity = HasCapacity(spec);
  if (!event.accepted && !capacity.ok()) return capacity;
  // Those that are missed may be so for long.
  const auto instances = static_cast<int64_t>(registry_.Pool(spec.model, Role::kDecode).size());
  if (instances == registry_.Counts(spec.model, Role::kDecode).missed) {
    return absl::UnavailableError(
        absl::StrCat("No decode instance of model '", spec.model, "' is available. Retry."));
  }
  return longs_.IsLong(spec) ? longs_.MaySubmit(spec, event.accepted, now_) : absl::OkStatus();
}

// RESOURCE_EXHAUSTED: nothing of the request was begun.
absl::Status OrchestratorCore::Impl::HasRoom() const {
  const auto requests = static_cast<int64_t>(requests_.size() + router_side_.held());
  if (requests < config_.max_requests) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("The cluster's request limit is reached (",
                                                   config_.max_requests, "). Retry later."));
}

// Where several tenants send, one that has its share leaves room for the others.
absl::Status OrchestratorCore::Impl::HasCapacity(const RequestHead& spec) {
  const std::string& model = spec.model;
  TenantPlaces& tenants = requests_.TenantsOf(model);
  tenants.Ask(spec.tenant, spec.tenant_weight, now_);
  if (absl::Status room = HasRoom(); !room.ok()) return room;
  const PoolCounts& prefill = registry_.Counts(model, Role::kPrefill);
  const PoolCounts& decode = registry_.Counts(model, Role::kDecode);
  if (prefill.unlimited + decode.unlimited > 0) return absl::OkStatus();
  const int64_t limit = prefill.request_limit + decode.request_limit;
  // Of those alive, held where nothing new is placed.
  const int64_t leaving = prefill.placed_not_serving + decode.placed_not_serving;
  if (limit == 0) return absl::OkStatus();
  if (requests_.CountOf(model) >= limit + leaving) {
    return absl::ResourceExhaustedError(absl::StrCat("The request limit of model '", model,
                                                     "' is reached (", limit,
                                                     ", what its instances hold). Retry later."));
  }
  tenants.SetPlaces(limit + leaving);
  if (tenants.MayTake(spec.tenant)) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("This tenant has its share of what the instances of model '", model, "' hold (",
                   tenants.HeldBy(spec.tenant), " of ", limit, "). Retry later."));
}

// The others come from this process itself, or from an operator. An address that answers says that
// this host is reached.
void OrchestratorCore::Impl::NoteHearing(const OrchestratorEvent& event) {
  const bool own = std::holds_alternative<OrchestratorTick>(event) ||
                   std::holds_alternative<ReplacePlanningTables>(event) ||
                   std::holds_alternative<DrainCalled>(event) ||
                   std::holds_alternative<FormationCalled>(event);
  if (!own) hearing_.Heard(registry_.listening().At(now_));
}

void OrchestratorCore::Impl::LookWhetherDeaf() {
  if (hearing_.TakeDeaf(Streams(), registry_.listening().elapsed())) {
    effects_.push_back(HearsNobody{});
  }
}

void OrchestratorCore::Impl::On(const OrchestratorTick&) {
  worker_side_.LoseTheSilent(now_);
  LookWhetherDeaf();
  worker_side_.LeaveTheSilent(now_);
  router_side_.LoseTheSilent(now_);
  router_side_.LeaveTheAbsent();
  replanner_.LeaveTheSilent(now_);
  SubmitEarly();
}

void OrchestratorCore::Impl::RunTimers() {
  worker_side_.OrderGroups(now_);
  formations_.Tick(now_);
  decode_.RunTimers(now_);
  prefill_.RunTimers(now_);
  for (const RequestId id : requests_.TakeDue(now_)) {
    Request* request = requests_.Find(id);
    if (request == nullptr) continue;
    RunTimers(*request);
    if (const Request* alive = requests_.Find(id)) requests_.Arm(*alive);
  }
}

void OrchestratorCore::Impl::RunTimers(Request& request) {
  if (now_ >= request.deadline_us) {
    return Fail(request, absl::DeadlineExceededError("the request's deadline passed"));
  }
  if (now_ >= request.asking_until_us) {
    decode_.WaitedLong(request, now_);
  }
}

// RESOURCE_EXHAUSTED would tell the router that nothing of the request was begun.
void OrchestratorCore::Impl::Fail(Request& request, const absl::Status& status) {
  explanations_.NoteFailed(&request);
  router_side_.NoteLost(request);  // its router may try again
  router_side_.TellFailed(
      request.spec->id,
      {absl::IsResourceExhausted(status) ? absl::UnavailableError(status.message()) : status,
       request.failures.failed(),
       /*condemned=*/!request.failures.Verdict().ok()});
  Erase(request, absl::StrCat("failed: ", std::string(status.message())));
}

// The router also closes a request when it is fully answered, often before the instances report.
// Their later reports tell how it ended, if the router did not.
void OrchestratorCore::Impl::CloseByRouter(Request& request) {
  const bool answering = request.explanation.prefilled_us >= 0 ||
                         (request.in_group && request.state == State::kPlaced);
  request.explanation.provisional = true;
  Erase(request, answering ? kEndedByRouter : kCancelledByRouter);
}

void OrchestratorCore::Impl::Finish(Request& request, FinishReason reason) {
  prefill_.TakeFromPrefill(request);  // it has committed, or the end would be another
  effects_.push_back(SendPlanUpdate{request.spec->id, PlanEnded{}});
  Erase(request, CompletedBy(reason));
}

void OrchestratorCore::Impl::Replan(Request& request, const absl::Status& why) {
  replanner_.Replan(request, why, now_);
}

void OrchestratorCore::Impl::Erase(Request& request, const std::string& why) {
  const RequestId id = request.spec->id;
  decode_.Answer(request, absl::NotFoundError("the request has ended"));
  if (!request.RanToItsEnd()) {
    sender_.CancelAtMembers(request, why);
    sender_.CancelAt(request.decode, request, why);
  }
  explanations_.NoteTimes(&request);
  if (!request.spec->traceparent.empty()) {
    effects_.push_back(
        TracedEnded{request.spec, request.submitted_us,
                    std::make_shared<const Explanation>(explanations_.AtEnd(request, why, now_))});
  }
  AwaitedReports reports = AwaitedReportsOf(request);
  prefill_.ForgetPlan(request, now_);
  decode_.ForgetPlan(request);
  replanner_.Forget(id);
  longs_.Forget(request);
  sharing_.Forget(request);
  sharing_.FirstEnded(id);
  explanations_.End(&request, why, now_, std::move(reports));
  requests_.Erase(request);
}

}  // namespace skein::scheduler
