// Entry, submission and the end of requests. Placement: placing.cc; instances: membership.cc.
#include "scheduler/orchestrator/orchestrator_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/base/check.h"
#include "scheduler/orchestrator/orchestrator_impl.h"

namespace skein::scheduler {

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

// Plan sequences continue above a predecessor's, too: workers order its requests with ours.
OrchestratorCore::Impl::Impl(const OrchestratorConfig& config)
    : config_(config),
      registry_(FirstNumberOf(config.generation), config.instance_lease_us),
      routers_(config.instance_lease_us),
      gone_(config.max_gone, config.gone_kept_us),
      finished_(config.max_explanations),
      generation_(config.generation),
      first_epoch_(FirstNumberOf(config.generation)),
      last_epoch_(first_epoch_ - 1),
      last_sequence_(last_epoch_) {
  if (plans()) {
    const absl::Status valid = CheckPlanning(*config_.planning);
    SKEIN_INVARIANT_MSG(valid.ok(), std::string(valid.message()).c_str());
  }
}

std::vector<OrchestratorEffect> OrchestratorCore::Impl::Handle(const OrchestratorEvent& event,
                                                               TimeUs now) {
  now_ = std::max(now_, now);
  effects_.clear();
  if (!std::exchange(started_, true) && generation_ > 1) Settle();
  std::visit([this](const auto& e) { On(e); }, event);
  SubmitEarly();
  RunTimers();
  PlaceWaiting();
  PlanParked();
  DecideRolling();
  if (const auto* submit = std::get_if<SubmitCalled>(&event)) TellAccepted(*submit);
  for (const std::string& model : moved_) NoteStarts(model);
  moved_.clear();
  return std::move(effects_);
}

void OrchestratorCore::Impl::On(const SubmitCalled& event) {
  if (now_ < settled_us_) return early_.push_back(event);
  Submit(event);
}

void OrchestratorCore::Impl::SubmitEarly() {
  if (early_.empty() || now_ < settled_us_) return;
  const std::vector<SubmitCalled> early = std::exchange(early_, {});
  for (const SubmitCalled& one : early) {
    Submit(one);
    TellAccepted(one);
  }
}

void OrchestratorCore::Impl::Submit(const SubmitCalled& event) {
  const RequestId id = event.spec->id;
  if (const Request* known = Find(id)) return TellState(*known);
  if (absl::Status status = MaySubmit(event); !status.ok()) {
    refused_ += absl::IsResourceExhausted(status) ? 1 : 0;
    return TellFailed(id, std::move(status));
  }
  ++alive_[event.spec->model];
  Request& request = requests_[id];
  ++in_state_[static_cast<size_t>(request.state)];
  request.number = ++submitted_;
  request.spec = event.spec;
  request.alone = event.alone;
  request.submitted_us = now_;
  request.explanation.id = id;
  request.explanation.names = event.spec->names;
  request.explanation.model = event.spec->model;
  request.explanation.prompt_tokens = PromptTokens(*request.spec);
  request.explanation.policy = plans() ? config_.planning->policy.name : "none";
  const TimeUs budget = event.spec->deadline_us;
  request.deadline_us = now_ + (budget > 0 ? budget : config_.request_deadline_us);
  Arm(request.deadline_us);
  if (Pool* pool = PoolOf(event.spec->model)) pool->planner.OnArrival(now_);
  Plan(request);
}

void OrchestratorCore::Impl::Note(Degraded kind, Request& request) {
  ++degraded_[static_cast<size_t>(kind)];
  ++request.explanation.degraded[static_cast<size_t>(kind)];
}

void OrchestratorCore::Impl::Enter(Request& request, State state) {
  --in_state_[static_cast<size_t>(request.state)];
  ++in_state_[static_cast<size_t>(state)];
  request.state = state;
}

// Whose plan has to wait.
void OrchestratorCore::Impl::TellAccepted(const SubmitCalled& event) {
  const Request* kept = Find(event.spec->id);
  if (kept == nullptr) return;
  if (kept->state != State::kQueued && kept->state != State::kParked) return;
  effects_.push_back(SendPlanUpdate{event.spec->id, scheduler::Accepted{}});
}

absl::Status OrchestratorCore::Impl::MaySubmit(const SubmitCalled& event) const {
  const RequestSpec& spec = *event.spec;
  if (spec.prompt.empty()) return absl::InvalidArgumentError("prompt: empty");
  if (spec.max_tokens < 0) return absl::InvalidArgumentError("max_tokens: negative");
  if (!registry_.KnowsModel(spec.model)) {
    return absl::NotFoundError(absl::StrCat("model ", spec.model, " is not served here"));
  }
  const absl::Status capacity = HasCapacity(spec.model);
  if (!event.accepted && !capacity.ok()) return capacity;
  const auto decode = registry_.Pool(spec.model, Role::kDecode);
  if (decode.empty()) {
    return absl::UnavailableError(
        absl::StrCat("No decode instance of model '", spec.model, "' is available. Retry."));
  }
  const int64_t tokens = PromptTokens(spec) + spec.max_tokens;
  const bool fits = std::any_of(decode.begin(), decode.end(), [&](const Instance* instance) {
    const WorkerIdentity& identity = instance->identity;
    return BlocksOf(identity.shape, tokens) <= identity.total_blocks &&
           (identity.max_positions == 0 || tokens <= identity.max_positions);
  });
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("prompt + max_tokens: ", tokens, " fit no decode instance"));
}

OrchestratorCore::Impl::Request* OrchestratorCore::Impl::Find(RequestId id) {
  const auto it = requests_.find(id);
  return it == requests_.end() ? nullptr : &it->second;
}

OrchestratorCore::Impl::Request* OrchestratorCore::Impl::Find(RequestId id, Epoch epoch) {
  Request* request = Find(id);
  return request != nullptr && request->epoch == epoch ? request : nullptr;
}

void OrchestratorCore::Impl::On(const OrchestratorTick&) {
  for (InstanceId dead : registry_.Listened(now_)) Lose(dead, "was lost: its lease expired");
  for (const uint64_t silent : routers_.Silent(registry_.listening().elapsed())) {
    LoseRouter(silent, "was lost: its lease expired", RouterGone::kSilent);
  }
  LeaveTheSilent();
}

void OrchestratorCore::Impl::RunTimers() {
  if (now_ < timers_us_) return;
  std::vector<RequestId> late;
  for (auto& [id, request] : requests_) {
    if (now_ >= request.deadline_us) {
      late.push_back(id);
    } else {
      RunTimers(request);
    }
  }
  for (RequestId id : late) {
    Fail(requests_.at(id), absl::DeadlineExceededError("the request's deadline passed"));
  }
  timers_us_ = kNever;
  for (const auto& [id, request] : requests_) Arm(NextTimer(request));
}

void OrchestratorCore::Impl::RunTimers(Request& request) {
  if (now_ >= request.begin_deadline_us) {
    AnswerBegin(request, absl::ResourceExhaustedError("no decode instance has room yet"));
  }
  if (request.joining.has_value() && now_ >= request.reserve_after_us) Join(request);
}

TimeUs OrchestratorCore::Impl::NextTimer(const Request& request) const {
  TimeUs next = std::min(request.deadline_us, request.begin_deadline_us);
  if (request.reserve_after_us > now_) next = std::min(next, request.reserve_after_us);
  return next;
}

// RESOURCE_EXHAUSTED would tell the router that nothing of the request was begun.
void OrchestratorCore::Impl::Fail(Request& request, const absl::Status& status) {
  ++failed_;
  request.explanation.failed = true;
  TellFailed(request.spec->id,
             absl::IsResourceExhausted(status) ? absl::UnavailableError(status.message()) : status);
  Erase(request, absl::StrCat("failed: ", std::string(status.message())));
}

// The router says so when all is answered, too, often before the instances' reports: what they say
// later tells how the request ended, if the router did not.
void OrchestratorCore::Impl::CloseByRouter(Request& request) {
  const bool answering = request.explanation.prefilled_us >= 0;
  request.explanation.provisional = true;
  Erase(request, answering ? kEndedByRouter : kCancelledByRouter);
}

void OrchestratorCore::Impl::Finish(Request& request, FinishReason reason) {
  TakeFromPrefill(request);  // it has committed, or the end would be another
  effects_.push_back(SendPlanUpdate{request.spec->id, PlanEnded{}});
  Erase(request, CompletedBy(reason));
}

AwaitedReports OrchestratorCore::Impl::AwaitedReportsOf(const Request& request) {
  AwaitedReports reports;
  const bool whole = PlannedTokens(request) == PromptTokens(*request.spec);
  if (request.state != State::kPlaced || !whole) return reports;
  reports.epoch = request.epoch;
  reports.decode = request.decode;
  for (const Member& member : request.members) {
    if (member.here) reports.prefill.insert(member.instance);
  }
  return reports;
}

void OrchestratorCore::Impl::Erase(Request& request, const std::string& why) {
  const RequestId id = request.spec->id;
  AnswerBegin(request, absl::NotFoundError("the request has ended"));
  CancelAtMembers(request, why);
  CancelAt(request.decode, request, why);
  LeaveRolling(request);
  NoteTimes(request);
  AwaitedReports reports = AwaitedReportsOf(request);
  TakeFromPrefill(request);
  TakeFromDecode(request);
  ForgetPlan(request);
  if (request.state == State::kWaiting) {
    waiting_.at(request.spec->model).erase(request.waiting_number);
  }
  Unpark(request);
  --alive_.at(request.spec->model);
  --in_state_[static_cast<size_t>(request.state)];
  replanning_.erase(id);
  moved_.insert(request.spec->model);
  request.explanation.state = why;
  request.explanation.ended_us = now_ - request.submitted_us;
  if (request.router_end.has_value() &&
      scheduler::TakeRouterEnd(*request.router_end, &request.explanation)) {
    ++failed_;
  }
  finished_.Add(now_, std::move(request.explanation), std::move(reports));
  requests_.erase(id);
}

}  // namespace skein::scheduler
