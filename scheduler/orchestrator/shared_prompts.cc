#include "scheduler/orchestrator/shared_prompts.h"

#include <utility>

#include "scheduler/orchestrator/requests/violated.h"

namespace skein::scheduler::orchestrator {

bool SharedPrompts::Begin(Request& request, TimeUs now) {
  if (!request.spec->prompt_of.has_value()) return false;
  const RequestId id = request.spec->id;
  const Request* first = parts_.requests->Find(*request.spec->prompt_of);
  if (first == nullptr || first->spec->id == id || first->shares_prompt) return false;
  if (first->spec->model != request.spec->model ||
      first->spec->prompt_tokens != request.spec->prompt_tokens ||
      first->spec->want_prompt_logprobs != request.spec->want_prompt_logprobs) {
    return false;
  }
  request.shares_prompt = true;
  request.epoch = parts_.numbers->NextEpoch();
  parts_.requests->Enter(request, State::kSharing);
  sharers_[first->spec->id].insert(id);
  const TimeUs decided_us = now - request.submitted_us;
  request.explanation.plans.push_back({.epoch = request.epoch,
                                       .decided_us = decided_us,
                                       .how = "shares the prompt of the answer's first choice"});
  if (first->decode != InstanceId{}) Announce(request, *first);
  parts_.effects->push_back(SendPlanUpdate{id, PlannedOf(request, *parts_.registry, decided_us)});
  return true;
}

void SharedPrompts::Announce(Request& request, const Request& first) {
  request.decode = first.decode;
  parts_.registry->Find(request.decode)
      ->Place(request.spec, request.epoch, /*announced_only=*/true);
  parts_.sender->Announce(request);
}

void SharedPrompts::FirstPlaced(const Request& first) {
  const auto it = sharers_.find(first.spec->id);
  if (it == sharers_.end()) return;
  for (const RequestId id : it->second) {
    Request& request = parts_.requests->At(id);
    if (request.decode == InstanceId{}) {
      Announce(request, first);
    } else if (request.decode != first.decode) {
      orphans_.insert(id);  // it may not be heard from there
    }
  }
}

void SharedPrompts::Opened(Request& request, TimeUs now) {
  if (request.state != State::kSharing) return;
  ++shared_;
  request.explanation.prefilled_us = now - request.submitted_us;
  Forget(request);
}

void SharedPrompts::Forget(const Request& request) {
  if (request.state != State::kSharing) return;
  const RequestId id = request.spec->id;
  orphans_.erase(id);
  announced_.erase(id);
  const auto it = sharers_.find(*request.spec->prompt_of);
  if (it == sharers_.end()) return;
  it->second.erase(id);
  if (it->second.empty()) sharers_.erase(it);
}

void SharedPrompts::FirstEnded(RequestId first) {
  const auto it = sharers_.find(first);
  if (it == sharers_.end()) return;
  for (const RequestId id : it->second) {
    const bool announced = parts_.requests->At(id).decode != InstanceId{};
    (announced ? announced_ : orphans_).insert(id);
  }
  sharers_.erase(it);
}

std::vector<RequestId> SharedPrompts::TakeOrphans() { return {orphans_.begin(), orphans_.end()}; }

absl::Status SharedPrompts::CheckRequest(RequestId id) const {
  const Request* request = parts_.requests->Find(id);
  if (request != nullptr && request->state == State::kSharing) return absl::OkStatus();
  return Violated(11, id, "is listed as sharing a prompt but does not share one");
}

absl::Status SharedPrompts::CheckInvariants() const {
  if (!orphans_.empty()) return Violated(11, *orphans_.begin(), "was not planned on its own");
  absl::Status found;
  size_t known = announced_.size();
  for (const RequestId id : announced_) found.Update(CheckRequest(id));
  for (const auto& [first, sharers] : sharers_) {
    known += sharers.size();
    if (parts_.requests->Find(first) == nullptr) {
      return Violated(11, first, "has ended, but others wait for its prompt");
    }
    for (const RequestId id : sharers) found.Update(CheckRequest(id));
  }
  if (!found.ok()) return found;
  const auto sharing = static_cast<size_t>(parts_.requests->CountIn(State::kSharing));
  if (known == sharing) return absl::OkStatus();
  return absl::InternalError("OrchestratorCore 11: a request that shares a prompt is not listed");
}

}  // namespace skein::scheduler::orchestrator
