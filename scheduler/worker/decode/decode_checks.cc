// What DecodeCore shows of itself: load, snapshot, deadlines, invariants.
#include <algorithm>
#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "scheduler/worker/decode/decode_impl.h"

namespace skein::scheduler {

// After the grace period of a drain only the step in flight is waited for, and with a failed engine
// not even that: memory that is quarantined goes away with the process.
bool DecodeCore::Impl::Empty() const {
  const bool quarantined = kv_in_.CountSequences().quarantined > 0;
  return (sequences_.empty() && (!quarantined || !steps_.engine().ok())) ||
         (now_ >= drain_end_us_ && !batch_.InFlight());
}

WorkerLoad DecodeCore::Impl::Load() const {
  WorkerLoad load;
  load.queued_requests = Count(Phase::kReceiving);
  load.running_requests = Count(Phase::kRunning);
  const BlockCounts blocks = kv_in_.blocks();
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
  for (const auto& [id, announced] : announcements_.all()) {
    held.push_back({.id = id, .epoch = announced.epoch, .opened = false});
  }
  return held;
}

TimeUs DecodeCore::Impl::NextDeadline() const {
  const TimeUs listened = std::min(attach_ends_.Next(), kv_in_.NextDeadline());
  TimeUs next = std::min({membership_.NextDeadline(), listening_.NextTick(listened),
                          announcements_.NextDeadline(),
                          steps_.engine().NextDeadline(/*may_probe=*/!membership_.leaving())});
  if (!Empty() && now_ < drain_end_us_) next = std::min(next, drain_end_us_);
  return next;
}

std::string_view DecodeCore::Impl::StateOf(RequestId id) const {
  if (announcements_.Find(id) != nullptr) return "announced";
  const auto it = sequences_.find(id);
  if (it == sequences_.end()) return "";
  if (it->second.phase == Phase::kReceiving) return kv_in_.StateOf(id);
  return it->second.phase == Phase::kRunning ? "running" : "ended";
}

DecodeSnapshot DecodeCore::Impl::Snapshot(TimeUs now) const {
  DecodeSnapshot snapshot{.registered = membership_.registered(),
                          .draining = membership_.draining(),
                          .stopping = membership_.leaving(),
                          .drained = membership_.draining() && Empty() &&
                                     announcements_.all().empty() && membership_.drain_told(),
                          .orchestrator = membership_.last_call(),
                          .engine = steps_.engine().status(),
                          .instance = membership_.instance(),
                          .load = Load(),
                          .blocks = kv_in_.blocks(),
                          .steps = steps_.steps(),
                          .probes = steps_.engine().probes(),
                          .output_tokens = output_tokens_,
                          .finished = finished_,
                          .failed = failed_};
  const KvIn::Counts counts = kv_in_.CountSequences();
  snapshot.announced = static_cast<int64_t>(announcements_.all().size());
  snapshot.granted = counts.granted;
  snapshot.running = Count(Phase::kRunning);
  snapshot.unclaimed = unclaimed_;
  snapshot.quarantined = counts.quarantined;
  if (const StagingBufferQueue* buffers = kv_in_.staging_buffers(); buffers != nullptr) {
    snapshot.buffers = buffers->buffers();
    snapshot.staging_buffers_held = buffers->buffers() - buffers->free();
    snapshot.staging_buffer_waiting = buffers->waiting();
  }
  snapshot.load.step_age_us = steps_.engine().StepAgeUs(now);
  if (!receiving_.empty()) snapshot.oldest_wait_us = now - receiving_.begin()->first;
  return snapshot;
}

absl::Status DecodeCore::Impl::CheckInvariants() const {
  if (absl::Status status = kv_in_.CheckInvariants(); !status.ok()) return status;
  if (absl::Status status = batch_.CheckInvariants(); !status.ok()) return status;
  if (absl::Status status = announcements_.CheckInvariants(); !status.ok()) return status;
  const auto violated = [](int number, RequestId id, const char* what) {
    return absl::InternalError(absl::StrCat("DecodeCore ", number, ": ", ToString(id), " ", what));
  };
  if (absl::Status status = membership_.CheckInvariants(Held()); !status.ok()) return status;
  if (absl::Status status = steps_.CheckInvariants(); !status.ok()) return status;
  size_t attached = 0;
  int64_t unclaimed = 0;
  std::array<int64_t, 3> counts{};
  for (const auto& [id, sequence] : sequences_) {
    ++counts[static_cast<size_t>(sequence.phase)];
    attached += sequence.stream == Stream::kAttached;
    unclaimed += sequence.phase == Phase::kEnded && sequence.stream == Stream::kUnattached;
    if (!kv_in_.Has(id)) {
      if (batch_.InFlight(id)) return violated(3, id, "runs without blocks");
      if (sequence.phase != Phase::kEnded) return violated(5, id, "lives without blocks");
      if (sequence.stream == Stream::kClosed) return violated(5, id, "is kept without a reason");
    }
    if (sequence.stream == Stream::kAttached && !sequence.unsent.empty()) {
      return violated(4, id, "keeps tokens from its stream");
    }
    if ((sequence.stream == Stream::kUnattached) != (attach_ends_.Of(id) != kNever)) {
      return violated(4, id, "waits for its router without end, or no more");
    }
  }
  if (counts != counts_ || unclaimed != unclaimed_ ||
      receiving_.size() != static_cast<size_t>(Count(Phase::kReceiving))) {
    return absl::InternalError("DecodeCore 5: the numbers of sequences by phase are wrong");
  }
  for (const auto& [id, announced] : announcements_.all()) {
    const auto sequence = sequences_.find(id);
    if (sequence != sequences_.end() && sequence->second.phase != Phase::kEnded) {
      return violated(5, id, "is announced while another epoch lives");
    }
  }
  if (attached != calls_.size()) {
    return absl::InternalError(
        absl::StrCat("DecodeCore 4: ", attached, " streams attached, ", calls_.size(), " calls"));
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
