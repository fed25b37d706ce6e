// What PrefillCore shows of itself: load, snapshot, deadlines, invariants.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "scheduler/worker/prefill/prefill_impl.h"

namespace skein::scheduler {

WorkerLoad PrefillCore::Impl::Load() const {
  WorkerLoad load;
  load.queued_tokens = batch_.PendingPromptTokens();
  for (const auto& [id, request] : requests_) {
    const bool waits = request.state == State::kQueued || request.state == State::kAsking;
    load.queued_requests += waits;
    if (request.sp_plan.has_value() && request.state != State::kEnding) {
      const auto share = static_cast<int64_t>(request.sp_plan->share.size());
      load.queued_tokens += (share - request.sp_plan->blocks_done) * shape_.block_tokens;
    } else if (waits) {
      load.queued_tokens += PromptTokens(*request.spec);
    }
    if (request.state == State::kPlaced) {
      ++load.running_requests;
    }
  }
  const BlockCounts blocks = pool_.Counts();
  load.free_blocks = blocks.free;
  load.held_blocks = blocks.held;
  load.cached_blocks = blocks.cached;
  load.total_blocks = blocks.total;
  load.tokens_per_second = rate_.PerSecond();
  load.draining = membership_.draining();
  load.step_age_us = steps_.engine().StepAgeUs(now_);
  load.step_estimate_us = steps_.engine().StepEstimateUs();
  return load;
}

std::vector<HeldRequest> PrefillCore::Impl::Held() const {
  std::vector<HeldRequest> held;
  for (const auto& [id, request] : requests_) {
    HeldRequest one{id, request.epoch};
    if (request.sp_plan.has_value()) {
      one.chunks_done = request.sp_plan->chunks_done;
      const TimeUs since = request.sp_plan->chunk_since_us;
      if (since != kNever) one.chunk_running_us = now_ - since;
    }
    held.push_back(one);
  }
  for (const auto& [id, assigns] : successors_) held.push_back({id, assigns.front().epoch});
  return held;
}

TimeUs PrefillCore::Impl::NextDeadline() const {
  TimeUs next = std::min(membership_.NextDeadline(),
                         steps_.engine().NextDeadline(/*may_probe=*/!membership_.leaving()));
  if (!requests_.empty() && now_ < drain_end_us_) next = std::min(next, drain_end_us_);
  return std::min({next, timers_.Next(), kv_out_.NextDeadline()});
}

TimeUs PrefillCore::Impl::EarliestTimer(const Request& request) {
  if (request.state == State::kEnding) return kNever;
  const bool joins = request.sp_plan.has_value() && request.state == State::kQueued;
  return std::min({request.deadline_us, request.ask_retry_us, request.ask_give_up_us,
                   joins ? request.sp_plan->join_until_us : kNever});
}

std::string_view PrefillCore::Impl::StateOf(RequestId id) const {
  static constexpr std::string_view kNames[] = {"queued", "asking", "placed", "ending"};
  const auto it = requests_.find(id);
  return it == requests_.end() ? "" : kNames[static_cast<size_t>(it->second.state)];
}

PrefillSnapshot PrefillCore::Impl::Snapshot(TimeUs now) const {
  PrefillSnapshot snapshot{.registered = membership_.registered(),
                           .draining = membership_.draining(),
                           .stopping = membership_.leaving(),
                           .drained = membership_.draining() && Empty() && membership_.drain_told(),
                           .orchestrator = membership_.last_call(),
                           .engine = steps_.engine().status(),
                           .instance = membership_.instance(),
                           .load = Load(),
                           .blocks = pool_.Counts(),
                           .steps = steps_.steps(),
                           .probes = steps_.engine().probes(),
                           .prompt_tokens = prompt_tokens_,
                           .committed = committed_,
                           .failed = failed_};
  snapshot.load.step_age_us = steps_.engine().StepAgeUs(now);
  snapshot.handoffs = kv_out_.CountWriting();
  for (const auto& [id, request] : requests_) {
    snapshot.queued += request.state == State::kQueued;
    snapshot.asking += request.state == State::kAsking;
    snapshot.computing += request.state == State::kPlaced && !request.computed;
    snapshot.committing += request.state == State::kPlaced && request.computed;
    snapshot.ending += request.state == State::kEnding;
    if (request.state == State::kQueued || request.state == State::kAsking) {
      snapshot.oldest_wait_us = std::max(snapshot.oldest_wait_us, now - request.arrived_us);
    }
  }
  return snapshot;
}

absl::Status PrefillCore::Impl::CheckInvariants() const {
  if (absl::Status status = pool_.CheckInvariants(); !status.ok()) return status;
  if (absl::Status status = batch_.CheckInvariants(); !status.ok()) return status;
  if (absl::Status status = kv_out_.CheckInvariants(); !status.ok()) return status;
  if (absl::Status status = membership_.CheckInvariants(Held()); !status.ok()) return status;
  if (absl::Status status = steps_.CheckInvariants(); !status.ok()) return status;
  int64_t blocks = 0;
  size_t queued = 0;
  int64_t in_front = 0;
  for (const auto& [id, request] : requests_) {
    if (request.blocks != nullptr) blocks += static_cast<int64_t>(request.blocks->size());
    queued += request.state == State::kQueued;
    in_front += request.in_front;
    const bool must =
        !request.sp_plan.has_value() &&
        (request.state == State::kAsking || (request.state == State::kPlaced && !request.computed));
    const bool may = request.state == State::kAsking || request.state == State::kPlaced;
    if ((must && !request.in_front) || (request.in_front && !may)) {
      return absl::InternalError(absl::StrCat("PrefillCore 6: ", ToString(id), " in front"));
    }
    if (EarliestTimer(request) < timers_.Of(id)) {
      return absl::InternalError(
          absl::StrCat("PrefillCore 6: ", ToString(id), " has a timer before the queue's"));
    }
    const bool touched = InFlight(id) || kv_out_.Writing(id);
    if (touched && request.blocks == nullptr) {
      return absl::InternalError(absl::StrCat("PrefillCore 2: ", ToString(id), " has no blocks"));
    }
    if (request.state == State::kEnding && !touched) {
      return absl::InternalError(absl::StrCat("PrefillCore 4: ", ToString(id), " never leaves"));
    }
  }
  if (blocks != pool_.Counts().held) {
    return absl::InternalError(absl::StrCat("PrefillCore 1: ", blocks, " blocks in tables, ",
                                            pool_.Counts().held, " held"));
  }
  if (in_front != queue_.front()) {
    return absl::InternalError(
        absl::StrCat("PrefillCore 6: ", queue_.front(), " counted in front, ", in_front, " are"));
  }
  if (queued != queue_.waiting()) {
    return absl::InternalError(
        absl::StrCat("PrefillCore 3: ", queue_.waiting(), " in the queue, ", queued, " queued"));
  }
  return CheckSpPlans();
}

}  // namespace skein::scheduler
