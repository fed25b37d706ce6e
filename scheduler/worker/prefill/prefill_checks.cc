// What PrefillCore shows of itself: load, snapshot, deadlines, invariants.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "scheduler/worker/prefill/prefill_impl.h"

namespace skein::scheduler {

// With a failed engine, requests left at the end of a drain's grace period are not waited for.
bool PrefillCore::Impl::Empty() const {
  return (requests_.all().empty() && orders_.successors().empty()) ||
         (!steps_.engine().ok() && now_ >= drain_end_us_);
}

WorkerLoad PrefillCore::Impl::Load() const {
  WorkerLoad load = LoadOf(membership_, steps_.loop(), requests_.blocks(), now_);
  const PrefillRequests::Count count = requests_.CountRequests();
  load.queued_tokens =
      steps_.PendingPromptTokens() + count.plain_tokens +
      sp_plans_.BlocksToCompute() * TokensPerBlock(config_.membership.identity.shape);
  load.queued_requests = count.queued() + count.asking();
  load.running_requests = count.computing() + count.committing();
  return load;
}

std::vector<HeldRequest> PrefillCore::Impl::Held() const {
  std::vector<HeldRequest> held;
  for (const auto& [id, request] : requests_.all()) {
    HeldRequest one{.id = id,
                    .epoch = request.epoch,
                    .opened = PrefillTransfers::HasOpened(request),
                    .chunks_done = PrefillTransfers::ChunksDone(request)};
    if (const SpPlan* plan = sp_plans_.Find(id)) {
      one.chunks_known = plan->chunks_known();
      one.chunks_done = plan->chunks_done();
      if (plan->chunk_since_us() != kNever) one.chunk_running_us = now_ - plan->chunk_since_us();
    }
    held.push_back(one);
  }
  for (const auto& [id, plan] : orders_.successors().all()) {
    const AssignRequest& latest = plan.assigns.back();
    const auto chunks = static_cast<uint32_t>(latest.chunks.size());
    held.push_back({.id = id, .epoch = latest.epoch, .chunks_known = chunks});
  }
  return held;
}

TimeUs PrefillCore::Impl::NextDeadline() const {
  TimeUs next = std::min(membership_.NextDeadline(),
                         steps_.engine().NextDeadline(/*may_probe=*/!membership_.leaving()));
  if (!requests_.all().empty() && now_ < drain_end_us_) next = std::min(next, drain_end_us_);
  return std::min(
      {next, requests_.NextDeadline(), place_calls_.NextDeadline(), kv_out_.NextDeadline()});
}

PrefillSnapshot PrefillCore::Impl::Snapshot(TimeUs now) const {
  PrefillSnapshot snapshot;
  Describe(membership_, steps_.loop(), Load(), requests_.blocks(), Empty(), now, &snapshot);
  snapshot.failed = ends_.failed();
  snapshot.committed = ends_.committed();
  snapshot.prompt_tokens = steps_.prompt_tokens();
  snapshot.kept_tokens = steps_.kept_tokens();
  snapshot.handoffs = kv_out_.CountWriting();
  const PrefillRequests::Count count = requests_.CountRequests();
  snapshot.queued = count.queued();
  snapshot.asking = count.asking();
  snapshot.computing = count.computing();
  snapshot.committing = count.committing();
  snapshot.ending = count[Standing::kEnding];
  return snapshot;
}

absl::Status PrefillCore::Impl::CheckInvariants() const {
  for (const absl::Status& status :
       {requests_.CheckInvariants(), sp_plans_.CheckInvariants(), place_calls_.CheckInvariants(),
        steps_.CheckInvariants(), kv_out_.CheckInvariants(), ends_.CheckInvariants(),
        transfers_.CheckInvariants(), orders_.CheckInvariants(),
        membership_.CheckInvariants(Held())}) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
