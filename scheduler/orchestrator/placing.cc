// Which instance decodes a prompt.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/orchestrator_impl.h"

namespace skein::scheduler {

void OrchestratorCore::Impl::AnswerBegin(Request& request, absl::Status status) {
  if (!request.begin_call.has_value()) return;
  BeginPrefillReply reply{std::move(status), {}};
  if (reply.status.ok()) reply.placed = PlacedOf(request);
  effects_.push_back(AnswerBeginPrefill{*request.begin_call, std::move(reply)});
  request.begin_call.reset();
  request.begin_deadline_us = kNever;
}

Placed OrchestratorCore::Impl::PlacedOf(const Request& request) const {
  return {request.epoch, request.decode, registry_.Find(request.decode)->identity.endpoint};
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
    instance->Take(request.spec->id);
  }
  request.decode = InstanceId{};
}

void OrchestratorCore::Impl::PlaceWaiting() {
  if (waiting_.empty()) return;
  for (auto& [model, line] : waiting_) {
    for (auto next = line.begin(); next != line.end();) {
      Request& request = requests_.at((next++)->second);
      if (!MustWaitForOlder(request) && !TryReserve(request)) break;
    }
  }
  std::erase_if(waiting_, [](const auto& entry) { return entry.second.empty(); });
}

// Instances run spanning plans in the order of their sequences, placed or not, and give blocks out
// in that order to plain ones, too. If this one were placed before an older one that shares an
// instance with it, it would hold decode room while it waits for the older one's turn or blocks,
// and the older one might wait for that very room.
bool OrchestratorCore::Impl::MustWaitForOlder(const Request& request) const {
  return request.spanning &&
         std::any_of(request.members.begin(), request.members.end(), [&](const Member& member) {
           return *unplaced_.at(member.instance).begin() < request.chunks[0].sequence;
         });
}

DecodeCandidate OrchestratorCore::Impl::DecodeCandidateOf(const Instance& instance) const {
  return {.instance = instance.id,
          .free_blocks = instance.load.free_blocks,
          .unreported_blocks = instance.unreported.blocks,
          .active_requests = instance.load.running_requests + instance.load.queued_requests,
          .unreported_requests = instance.unreported.requests};
}

// The first in line leaves it (true), or nobody does: a request that needs much room is not
// overtaken by small ones.
bool OrchestratorCore::Impl::TryReserve(Request& request) {
  if (now_ < request.reserve_after_us) return false;
  std::vector<DecodeCandidate> candidates;
  std::vector<DecodeCandidate> old_candidates;
  int64_t blocks = 0;
  for (const Instance* instance : registry_.Pool(request.spec->model, Role::kDecode)) {
    if (instance->draining() || request.tried_decode.count(instance->id) > 0) continue;
    const int64_t tokens = PromptTokens(*request.spec) + request.spec->max_tokens;
    blocks = BlocksOf(instance->identity.shape, tokens);  // one shape in a model's pool
    if (blocks > instance->identity.total_blocks) continue;
    auto& list = request.old_decodes.count(instance->id) > 0 ? old_candidates : candidates;
    list.push_back(DecodeCandidateOf(*instance));
    if (!instance->Placeable()) list.back().free_blocks = 0;  // soon, perhaps
  }
  if (candidates.empty()) candidates = std::move(old_candidates);
  if (candidates.empty()) {
    Fail(request,
         absl::UnavailableError(absl::StrCat("No decode instance of model '", request.spec->model,
                                             "' is available. Retry.")));
    return true;
  }
  const std::optional<InstanceId> pick = PickDecode(candidates, blocks);
  if (!pick.has_value()) return false;
  Instance& instance = *registry_.Find(*pick);
  waiting_.at(request.spec->model).erase(request.waiting_number);
  request.state = State::kReserving;
  request.decode = *pick;
  instance.Place(request.spec, request.epoch);
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
    NotePlaced(*request);
    request->placed_us = registry_.listening().At(now_);
    request->explanation.placed_us = now_ - request->submitted_us;
    moved_.insert(request->spec->model);
    effects_.push_back(SendPlanUpdate{request->submit, event.id, PlacedOf(*request)});
    AnswerBegin(*request, absl::OkStatus());
    StartMembers(*request);
  } else if (status.code() == absl::StatusCode::kResourceExhausted) {
    instance.load.free_blocks = 0;  // until its next report
    BackToWaiting(*request);
  } else if (status.code() == absl::StatusCode::kInvalidArgument) {
    Fail(*request, status);
  } else if (absl::IsUnavailable(status) && request->old_decodes.count(event.instance) > 0) {
    request->reserve_after_us = now_ + config_.retry_us;  // the old epoch's blocks are on their way
    Arm(request->reserve_after_us);
    BackToWaiting(*request);  // no Cancel: this epoch is asked for again
  } else {
    CancelAt(event.instance, *request, "placed elsewhere");  // it may have been executed
    request->tried_decode.insert(event.instance);
    BackToWaiting(*request);
  }
}

}  // namespace skein::scheduler
