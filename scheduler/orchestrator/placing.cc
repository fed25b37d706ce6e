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
  effects_.push_back(
      AnswerBeginPrefill{*request.begin_call, request.spec->id, request.epoch, std::move(reply)});
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
  Enter(request, State::kWaiting);
  waiting_[request.spec->model][request.waiting_number] = request.spec->id;
  Join(request);
}

void OrchestratorCore::Impl::TakeFromDecode(Request& request) {
  if (Instance* instance = registry_.Find(request.decode)) {
    instance->Take(request.spec->id);
  }
  request.decode = InstanceId{};
  request.named.clear();
  request.naming.clear();
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
  bool tried = false;
  for (const Instance* instance : registry_.Pool(request.spec->model, Role::kDecode)) {
    if (instance->draining()) continue;
    if (request.tried_decode.count(instance->id) > 0) {
      tried = true;
      continue;
    }
    const int64_t tokens = PromptTokens(*request.spec) + request.spec->max_tokens;
    blocks = BlocksOf(instance->identity.shape, tokens);  // one shape in a model's pool
    if (blocks > instance->identity.total_blocks) continue;
    auto& list = request.old_decodes.count(instance->id) > 0 ? old_candidates : candidates;
    list.push_back(DecodeCandidateOf(*instance));
    if (!instance->Placeable() || !instance->HasRoom()) list.back().free_blocks = 0;  // not now
  }
  if (candidates.empty()) candidates = std::move(old_candidates);
  if (candidates.empty() && tried) {  // this epoch was cancelled there
    request.old_decodes.merge(request.tried_decode);
    request.tried_decode.clear();
    Replan(request, absl::UnavailableError("no decode instance took the request"));
    return true;
  }
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
  Enter(request, State::kReserving);
  request.decode = *pick;
  instance.Place(request.spec, request.epoch);
  CallReserveAt(request, instance);
  return true;
}

void OrchestratorCore::Impl::CallReserveAt(Request& request, const Instance& instance) {
  ReserveRequest reserve{request.spec, request.epoch};
  for (const Member& member : request.members) request.naming.insert(member.instance);
  if (request.joining.has_value()) {
    const std::vector<InstanceId>& more = request.joining->instances;
    request.naming.insert(more.begin(), more.end());
  }
  for (const InstanceId id : request.naming) {
    const Instance* writer = registry_.Find(id);  // null: it has committed its part, and left
    if (writer != nullptr) reserve.writers.push_back(writer->identity.incarnation);
  }
  Send(CallReserve{instance.id, std::move(reserve)});
}

// At the same instance: blocks of an older epoch are on their way back there, or no other instance
// is left that was not tried.
bool OrchestratorCore::Impl::MayReserveAgain(const Request& request, InstanceId at,
                                             const absl::Status& status) const {
  if (absl::IsUnavailable(status) && request.old_decodes.count(at) > 0) return true;
  if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return false;
  const auto pool = registry_.Pool(request.spec->model, Role::kDecode);
  return std::none_of(pool.begin(), pool.end(), [&](const Instance* other) {
    return other->id != at && other->Serves() && request.tried_decode.count(other->id) == 0;
  });
}

void OrchestratorCore::Impl::TakeNaming(Request& request, const absl::Status& status) {
  if (status.ok()) request.named.merge(request.naming);
  request.naming.clear();
}

// The Reserve that names the plan's new members at the decode instance was answered.
void OrchestratorCore::Impl::NamedMore(Request& request, const absl::Status& status) {
  if (status.ok()) return Join(request);
  const bool passes = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
                      absl::IsResourceExhausted(status);
  if (passes) {
    request.reserve_after_us = now_ + config_.retry_us;
    return Arm(request.reserve_after_us);
  }
  Replan(request, absl::UnavailableError(
                      absl::StrCat("decode instance ", request.decode.value,
                                   " refused the Reserve that names the plan's new members: ",
                                   std::string(status.message()))));
}

void OrchestratorCore::Impl::On(const ReserveReplied& event) {
  Request* request = Find(event.id, event.epoch);
  if (request == nullptr || request->decode != event.instance || request->naming.empty()) return;
  const absl::Status& status = event.reply.status;
  TakeNaming(*request, status);
  if (request->state == State::kPlaced) return NamedMore(*request, status);
  Instance& instance = *registry_.Find(event.instance);
  if (status.ok()) {
    Enter(*request, State::kPlaced);
    NotePlaced(*request);
    request->explanation.placed_us = now_ - request->submitted_us;
    moved_.insert(request->spec->model);
    effects_.push_back(SendPlanUpdate{event.id, PlacedOf(*request)});
    AnswerBegin(*request, absl::OkStatus());
    StartMembers(*request);
    Join(*request);
    return;
  }
  if (absl::IsInvalidArgument(status)) return Fail(*request, status);
  Note(Degraded::kDecodeRetried, *request);
  if (absl::IsResourceExhausted(status)) {
    instance.load.free_blocks = 0;  // until its next report
    BackToWaiting(*request);
  } else if (MayReserveAgain(*request, event.instance, status)) {
    request->reserve_after_us = now_ + config_.retry_us;
    Arm(request->reserve_after_us);
    BackToWaiting(*request);  // no Cancel: this epoch is asked for again
  } else {
    CancelAt(event.instance, *request, "placed elsewhere");  // it may have been executed
    request->tried_decode.insert(event.instance);
    BackToWaiting(*request);
  }
}

}  // namespace skein::scheduler
