// Which instance computes a prompt, and which one decodes it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/orchestrator_impl.h"

namespace skein::scheduler {

PrefillCandidate OrchestratorCore::Impl::PrefillCandidateOf(const Instance& instance) const {
  PrefillCandidate candidate{.instance = instance.id,
                             .queued_tokens = instance.load.queued_tokens,
                             .unreported_tokens = 0,
                             .tokens_per_second = instance.load.tokens_per_second};
  if (candidate.tokens_per_second <= 0) {
    candidate.tokens_per_second = config_.default_tokens_per_second;
  }
  for (const auto& [id, epoch] : instance.placed) {
    if (instance.held.count(id) > 0) continue;
    candidate.unreported_tokens += static_cast<int64_t>(requests_.at(id).spec->prompt.size());
  }
  return candidate;
}

void OrchestratorCore::Impl::Assign(Request& request) {
  TakeFromPrefill(request);
  std::vector<PrefillCandidate> candidates;
  for (const Instance* instance : registry_.Pool(request.spec->model, Role::kPrefill)) {
    if (!instance->Placeable() || request.tried_prefill.count(instance->id) > 0) continue;
    candidates.push_back(PrefillCandidateOf(*instance));
  }
  const auto prompt_tokens = static_cast<int64_t>(request.spec->prompt.size());
  const std::optional<InstanceId> pick = PickPrefill(candidates, prompt_tokens);
  if (!pick.has_value()) {
    return Fail(request,
                absl::UnavailableError(absl::StrCat("model ", request.spec->model,
                                                    " has no prefill instance that takes it")));
  }
  Instance& instance = *registry_.Find(*pick);
  request.epoch = Epoch{++last_epoch_};
  request.state = State::kAssigning;
  request.prefill = *pick;
  request.tried_prefill.insert(*pick);
  request.assigned_us = kNever;
  instance.placed[request.spec->id] = request.epoch;
  effects_.push_back(CallAssign{*pick,
                                instance.identity.endpoint,
                                {request.spec, request.epoch, PlanSequence{++last_sequence_}},
                                config_.rpc_timeout_us});
  effects_.push_back(
      SendPlanUpdate{request.submit, request.spec->id, Planned{request.epoch, *pick}});
}

void OrchestratorCore::Impl::TakeFromPrefill(Request& request) {
  if (Instance* instance = registry_.Find(request.prefill)) {
    instance->placed.erase(request.spec->id);
  }
  request.prefill = InstanceId{};
}

void OrchestratorCore::Impl::On(const AssignReplied& event) {
  Request* request = Find(event.id, event.epoch);
  // BeginPrefill may have come first; then the answer no longer matters.
  if (request == nullptr || request->state != State::kAssigning) return;
  const absl::Status& status = event.reply.status;
  if (status.ok()) {
    request->state = State::kAssigned;
    request->assigned_us = now_;
    return;
  }
  if (status.code() == absl::StatusCode::kInvalidArgument) return Fail(*request, status);
  CancelAt(request->prefill, *request, "assigned elsewhere");  // it may have been executed
  Assign(*request);
}

void OrchestratorCore::Impl::On(const BeginPrefillCalled& event) {
  Request* request = Find(event.request.id);
  if (request == nullptr || request->epoch != event.request.epoch ||
      request->prefill != event.request.instance) {
    absl::Status status = request == nullptr ? absl::NotFoundError("unknown request")
                                             : absl::FailedPreconditionError("epoch: stale");
    effects_.push_back(AnswerBeginPrefill{event.call, {std::move(status), {}}});
    return;
  }
  AnswerBegin(*request, absl::AbortedError("asked again"));
  request->begin_call = event.call;
  request->begin_deadline_us = now_ + config_.begin_wait_us;
  Arm(request->begin_deadline_us);
  request->assigned_us = std::min(request->assigned_us, now_);
  if (request->state == State::kPlaced) {
    AnswerBegin(*request, absl::OkStatus());
  } else if (request->state != State::kReserving) {
    BackToWaiting(*request);
  }
}

void OrchestratorCore::Impl::AnswerBegin(Request& request, absl::Status status) {
  if (!request.begin_call.has_value()) return;
  BeginPrefillReply reply{std::move(status), {}};
  if (reply.status.ok()) {
    reply.placed = {request.epoch, request.decode,
                    registry_.Find(request.decode)->identity.endpoint};
  }
  effects_.push_back(AnswerBeginPrefill{*request.begin_call, std::move(reply)});
  request.begin_call.reset();
  request.begin_deadline_us = kNever;
}

// A request keeps the place of its first asking.
void OrchestratorCore::Impl::BackToWaiting(Request& request) {
  TakeFromDecode(request);
  if (request.waiting_number == 0) {
    request.waiting_number = ++last_waiting_;
    request.waiting_since_us = now_;
  }
  request.state = State::kWaiting;
  waiting_[request.spec->model][request.waiting_number] = request.spec->id;
}

void OrchestratorCore::Impl::TakeFromDecode(Request& request) {
  if (Instance* instance = registry_.Find(request.decode)) {
    instance->placed.erase(request.spec->id);
  }
  request.decode = InstanceId{};
}

void OrchestratorCore::Impl::PlaceWaiting() {
  for (auto& [model, line] : waiting_) {
    while (!line.empty()) {
      if (!TryReserve(requests_.at(line.begin()->second))) break;
    }
  }
  std::erase_if(waiting_, [](const auto& entry) { return entry.second.empty(); });
}

DecodeCandidate OrchestratorCore::Impl::DecodeCandidateOf(const Instance& instance) const {
  DecodeCandidate candidate{
      .instance = instance.id,
      .free_blocks = instance.load.free_blocks,
      .active_requests = instance.load.running_requests + instance.load.queued_requests};
  for (const auto& [id, epoch] : instance.placed) {
    if (instance.held.count(id) > 0) continue;
    const RequestSpec& spec = *requests_.at(id).spec;
    candidate.unreported_blocks += BlocksOf(
        instance.identity.shape, static_cast<int64_t>(spec.prompt.size()) + spec.max_tokens);
    ++candidate.unreported_requests;
  }
  return candidate;
}

// The first in line leaves it (true), or nobody does: a request that needs much room is not
// overtaken by small ones.
bool OrchestratorCore::Impl::TryReserve(Request& request) {
  std::vector<DecodeCandidate> candidates;
  int64_t blocks = 0;
  for (const Instance* instance : registry_.Pool(request.spec->model, Role::kDecode)) {
    if (instance->load.draining || request.tried_decode.count(instance->id) > 0) continue;
    const int64_t tokens =
        static_cast<int64_t>(request.spec->prompt.size()) + request.spec->max_tokens;
    blocks = BlocksOf(instance->identity.shape, tokens);  // one shape in a model's pool
    if (blocks > instance->identity.total_blocks) continue;
    candidates.push_back(DecodeCandidateOf(*instance));
    if (!instance->Placeable()) candidates.back().free_blocks = 0;  // soon, perhaps
  }
  if (candidates.empty()) {
    Fail(request, absl::UnavailableError(absl::StrCat("model ", request.spec->model,
                                                      " has no decode instance that takes it")));
    return true;
  }
  const std::optional<InstanceId> pick = PickDecode(candidates, blocks);
  if (!pick.has_value()) return false;
  Instance& instance = *registry_.Find(*pick);
  waiting_.at(request.spec->model).erase(request.waiting_number);
  request.state = State::kReserving;
  request.decode = *pick;
  instance.placed[request.spec->id] = request.epoch;
  effects_.push_back(CallReserve{
      *pick, instance.identity.endpoint, {request.spec, request.epoch}, config_.rpc_timeout_us});
  return true;
}

void OrchestratorCore::Impl::On(const ReserveReplied& event) {
  Request* request = Find(event.id, event.epoch);
  if (request == nullptr || request->state != State::kReserving ||
      request->decode != event.instance) {
    return;
  }
  const absl::Status& status = event.reply.status;
  Instance& instance = *registry_.Find(event.instance);
  if (status.ok()) {
    request->state = State::kPlaced;
    request->placed_us = now_;
    effects_.push_back(
        SendPlanUpdate{request->submit, event.id,
                       Placed{request->epoch, event.instance, instance.identity.endpoint}});
    AnswerBegin(*request, absl::OkStatus());
  } else if (status.code() == absl::StatusCode::kResourceExhausted) {
    instance.load.free_blocks = 0;  // until its next report
    BackToWaiting(*request);
  } else if (status.code() == absl::StatusCode::kInvalidArgument) {
    Fail(*request, status);
  } else {
    CancelAt(event.instance, *request, "placed elsewhere");  // it may have been executed
    request->tried_decode.insert(event.instance);
    BackToWaiting(*request);
  }
}

}  // namespace skein::scheduler
