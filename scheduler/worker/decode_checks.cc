// What DecodeCore shows of itself: load, snapshot, deadlines, invariants.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "scheduler/worker/decode_impl.h"

namespace skein::scheduler {

// After the grace period of a drain only the step in flight is waited for, and with a failed engine
// not even that: memory that is quarantined goes away with the process.
bool DecodeCore::Impl::Empty() const {
  return (sequences_.empty() && (quarantines_.empty() || !steps_.engine().ok())) ||
         (now_ >= drain_end_us_ && !batch_.InFlight());
}

int64_t DecodeCore::Impl::LiveCount() const {
  return std::count_if(sequences_.begin(), sequences_.end(),
                       [](const auto& entry) { return entry.second.phase != Phase::kEnded; });
}

WorkerLoad DecodeCore::Impl::Load() const {
  WorkerLoad load;
  for (const auto& [id, sequence] : sequences_) {
    load.queued_requests += sequence.phase == Phase::kGranted;
    load.running_requests += sequence.phase == Phase::kRunning;
  }
  const BlockCounts blocks = pool_.Counts();
  load.queued_tokens = batch_.PendingPromptTokens();
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

std::vector<HeldRequest> DecodeCore::Impl::Held() const {
  std::vector<HeldRequest> held;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.phase != Phase::kEnded) {
      held.push_back({.id = id, .epoch = sequence.epoch, .opened = true});
    }
  }
  for (const auto& [id, announced] : announced_) {
    held.push_back({.id = id, .epoch = announced.epoch, .opened = false});
  }
  return held;
}

TimeUs DecodeCore::Impl::NextDeadline() const {
  TimeUs next = std::min({membership_.NextDeadline(), listening_.NextTick(NextLeaseEnd()),
                          steps_.engine().NextDeadline(/*may_probe=*/!membership_.leaving())});
  if (!Empty() && now_ < drain_end_us_) next = std::min(next, drain_end_us_);
  for (const Asking& asking : asking_) next = std::min(next, asking.until_us);
  for (const Opening& opening : openings_) next = std::min(next, opening.until_us);
  return std::min(next, announced_ends_.Next());
}

TimeUs DecodeCore::Impl::NextLeaseEnd() const {
  TimeUs next = backends_.has_value() ? backends_->NextDeadline() : kNever;
  for (const auto& [id, sequence] : sequences_) {
    next = std::min(next, sequence.attach_end_us);
    if (sequence.phase != Phase::kGranted) continue;
    next = std::min(next, sequence.lease_end_us);
    for (const auto& [instance, writer] : sequence.writers) {
      if (writer.writing) next = std::min(next, writer.lease_end_us);
    }
  }
  for (const auto& [key, quarantine] : quarantines_) {
    for (const auto& [instance, writer] : quarantine.writers) {
      next = std::min(next, writer.lease_end_us + config_.grace_us);
    }
  }
  return next;
}

std::string_view DecodeCore::Impl::StateOf(RequestId id) const {
  static constexpr std::string_view kNames[] = {"granted", "running", "ended"};
  if (announced_.count(id) > 0) return "announced";
  const auto it = sequences_.find(id);
  return it == sequences_.end() ? "" : kNames[static_cast<size_t>(it->second.phase)];
}

DecodeSnapshot DecodeCore::Impl::Snapshot(TimeUs now) const {
  DecodeSnapshot snapshot{.registered = membership_.registered(),
                          .draining = membership_.draining(),
                          .stopping = membership_.leaving(),
                          .drained = membership_.draining() && Empty() && announced_.empty() &&
                                     membership_.drain_told(),
                          .orchestrator = membership_.last_call(),
                          .engine = steps_.engine().status(),
                          .instance = membership_.instance(),
                          .load = Load(),
                          .blocks = pool_.Counts(),
                          .steps = steps_.steps(),
                          .probes = steps_.engine().probes(),
                          .output_tokens = output_tokens_,
                          .finished = finished_,
                          .failed = failed_};
  snapshot.announced = static_cast<int64_t>(announced_.size());
  snapshot.quarantined = static_cast<int64_t>(quarantines_.size());
  if (backends_.has_value()) {
    snapshot.backends = backends_->backends();
    snapshot.backends_held = backends_->backends() - backends_->free();
    snapshot.backend_waiting = backends_->waiting();
  }
  snapshot.load.step_age_us = steps_.engine().StepAgeUs(now);
  for (const auto& [id, sequence] : sequences_) {
    snapshot.granted += sequence.phase == Phase::kGranted;
    snapshot.running += sequence.phase == Phase::kRunning;
    snapshot.unclaimed += sequence.phase == Phase::kEnded && sequence.stream == Stream::kUnattached;
    if (sequence.phase == Phase::kGranted) {
      snapshot.oldest_wait_us = std::max(snapshot.oldest_wait_us, now - sequence.arrived_us);
    }
  }
  return snapshot;
}

absl::Status DecodeCore::Impl::CheckInvariants() const {
  if (absl::Status status = pool_.CheckInvariants(); !status.ok()) return status;
  if (absl::Status status = batch_.CheckInvariants(); !status.ok()) return status;
  if (backends_.has_value()) {
    if (absl::Status status = backends_->CheckInvariants(); !status.ok()) return status;
  }
  const auto violated = [](int number, RequestId id, const char* what) {
    return absl::InternalError(absl::StrCat("DecodeCore ", number, ": ", ToString(id), " ", what));
  };
  if (absl::Status status = membership_.CheckHeld(Held()); !status.ok()) return status;
  int64_t blocks = 0;
  size_t attached = 0;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.blocks != nullptr) blocks += static_cast<int64_t>(sequence.blocks->size());
    attached += sequence.stream == Stream::kAttached;
    if (!sequence.writers.empty() && sequence.blocks == nullptr) {
      return violated(2, id, "has a writer");
    }
    if (sequence.blocks == nullptr && batch_.InFlight(id)) {
      return violated(3, id, "runs without blocks");
    }
    if (sequence.stream == Stream::kAttached && !sequence.unsent.empty()) {
      return violated(4, id, "keeps tokens from its stream");
    }
    if (sequence.phase != Phase::kEnded && sequence.blocks == nullptr) {
      return violated(5, id, "lives without blocks");
    }
  }
  for (const auto& [id, announced] : announced_) {
    const auto sequence = sequences_.find(id);
    if (sequence != sequences_.end() && sequence->second.phase != Phase::kEnded) {
      return violated(5, id, "is announced while another epoch lives");
    }
    if (announced_ends_.Of(id) == kNever) return violated(5, id, "is announced without an end");
  }
  int64_t quarantined = 0;
  for (const auto& [key, quarantine] : quarantines_) {
    quarantined += static_cast<int64_t>(quarantine.blocks->size());
    if (quarantine.writers.empty() && !Copying(key.first, key.second)) {
      return violated(2, key.first, "is quarantined for nobody");
    }
  }
  if (quarantined != pool_.Counts().quarantined) {
    return absl::InternalError(absl::StrCat("DecodeCore 2: ", quarantined, " blocks quarantined, ",
                                            pool_.Counts().quarantined, " in the pool"));
  }
  blocks += quarantined;
  if (blocks != pool_.Counts().held) {
    return absl::InternalError(absl::StrCat("DecodeCore 1: ", blocks, " blocks in tables, ",
                                            pool_.Counts().held, " held"));
  }
  if (attached != calls_.size()) {
    return absl::InternalError(
        absl::StrCat("DecodeCore 4: ", attached, " streams attached, ", calls_.size(), " calls"));
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
