// What OrchestratorCore shows of itself: snapshot, deadlines, invariants.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/orchestrator_impl.h"

namespace skein::scheduler {

TimeUs OrchestratorCore::Impl::NextDeadline() const {
  return std::min(registry_.NextExpiry(), timers_us_);
}

OrchestratorSnapshot OrchestratorCore::Impl::Snapshot(TimeUs now) const {
  OrchestratorSnapshot snapshot{.instances = {},
                                .submitted = submitted_,
                                .failed = failed_,
                                .instances_lost = instances_lost_,
                                .last_epoch = Epoch{last_epoch_}};
  for (const auto& [id, instance] : registry_.instances()) {
    InstanceStatus status{.instance = id,
                          .identity = instance.identity,
                          .load = instance.load,
                          .silent_us = now - instance.heard_us,
                          .placed_requests = static_cast<int64_t>(instance.placed.size())};
    if (instance.identity.role == Role::kPrefill) {
      status.queue_seconds = QueueSeconds(PrefillCandidateOf(instance));
    } else {
      const DecodeCandidate candidate = DecodeCandidateOf(instance);
      status.freeness = Freeness(candidate);
      status.virtual_blocks = candidate.unreported_blocks;
    }
    snapshot.instances.push_back(std::move(status));
  }
  for (const auto& [id, request] : requests_) {
    snapshot.assigning += request.state == State::kAssigning;
    snapshot.assigned += request.state == State::kAssigned;
    snapshot.waiting += request.state == State::kWaiting;
    snapshot.reserving += request.state == State::kReserving;
    snapshot.placed += request.state == State::kPlaced;
    if (request.state == State::kWaiting) {
      snapshot.oldest_wait_us = std::max(snapshot.oldest_wait_us, now - request.waiting_since_us);
    }
  }
  return snapshot;
}

absl::Status OrchestratorCore::Impl::CheckInvariants() const {
  const auto violated = [](int number, RequestId id, const char* what) {
    return absl::InternalError(
        absl::StrCat("OrchestratorCore ", number, ": ", ToString(id), " ", what));
  };
  size_t on_instances = 0;
  size_t waiting = 0;
  for (const auto& [id, request] : requests_) {
    const auto submit = submits_.find(request.submit);
    if (submit == submits_.end() || submit->second != id) return violated(1, id, "has no stream");
    for (InstanceId at : {request.prefill, request.decode}) {
      if (at == InstanceId{}) continue;
      const Instance* instance = registry_.Find(at);
      if (instance == nullptr) return violated(2, id, "is on a dead instance");
      const auto placed = instance->placed.find(id);
      if (placed == instance->placed.end() || placed->second != request.epoch) {
        return violated(2, id, "is not known at its instance");
      }
      ++on_instances;
    }
    const bool decodes = request.state == State::kReserving || request.state == State::kPlaced;
    if (decodes != (request.decode != InstanceId{})) return violated(2, id, "has no decode place");
    if (request.state == State::kWaiting) {
      ++waiting;
      const auto line = waiting_.find(request.spec->model);
      if (line == waiting_.end() || line->second.count(request.waiting_number) == 0) {
        return violated(3, id, "waits in no list");
      }
    }
    if (std::min(request.deadline_us, request.begin_deadline_us) < timers_us_) {
      return violated(6, id, "is overslept");
    }
    if (request.epoch.value > last_epoch_) return violated(4, id, "has an epoch of the future");
  }
  for (const auto& [model, line] : waiting_) waiting -= line.size();
  for (const auto& [id, instance] : registry_.instances()) on_instances -= instance.placed.size();
  if (waiting != 0) return absl::InternalError("OrchestratorCore 3: a list holds others");
  if (on_instances != 0) return absl::InternalError("OrchestratorCore 2: an instance holds others");
  if (submits_.size() != requests_.size()) {
    return absl::InternalError("OrchestratorCore 1: streams without a request");
  }
  for (const auto& [a_id, a] : registry_.instances()) {
    for (const auto& [b_id, b] : registry_.instances()) {
      if (a.identity.model == b.identity.model && !(a.identity.shape == b.identity.shape)) {
        return absl::InternalError(absl::StrCat("OrchestratorCore 5: model ", a.identity.model));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
