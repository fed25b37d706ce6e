// What DecodeCore shows of itself: load, snapshot, deadlines, invariants.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "scheduler/worker/decode/decode_impl.h"

namespace skein::scheduler {

// Not of blocks in quarantine: they go away with the process. After the grace period of a drain
// only the step in flight is waited for.
bool DecodeCore::Impl::Empty() const {
  return sequences_.all().empty() || (now_ >= drain_end_us_ && !batch_.InFlight());
}

WorkerLoad DecodeCore::Impl::Load() const {
  WorkerLoad load = LoadOf(membership_, steps_, kv_in_.blocks(), now_);
  load.queued_requests = sequences_.Count(Phase::kReceiving) + sequences_.Count(Phase::kPreempted);
  load.running_requests = sequences_.Count(Phase::kRunning);
  load.queued_tokens = batch_.PendingPromptTokens();
  const int64_t free = kv_in_.blocks().free;
  load.claimed_blocks = SomeWaitForBlocks() ? free : std::min(free, Headroom());
  return load;
}

std::vector<HeldRequest> DecodeCore::Impl::Held() const {
  std::vector<HeldRequest> held;
  for (const auto& [id, sequence] : sequences_.all()) {
    if (!sequence.told) {
      held.push_back(
          {.id = id, .epoch = sequence.epoch, .opened = true, .preemptions = sequence.preemptions});
    }
  }
  for (const auto& [id, announced] : announcements_.all()) {
    held.push_back({.id = id, .epoch = announced.epoch, .opened = false});
  }
  return held;
}

TimeUs DecodeCore::Impl::NextDeadline() const {
  const TimeUs listened = std::min(sequences_.NextAttachEnd(), kv_in_.NextDeadline());
  TimeUs next = std::min({membership_.NextDeadline(), listening_.NextTick(listened),
                          announcements_.NextDeadline(),
                          steps_.engine().NextDeadline(/*may_probe=*/!membership_.leaving())});
  if (!Empty() && now_ < drain_end_us_) next = std::min(next, drain_end_us_);
  return next;
}

std::string_view DecodeCore::Impl::StateOf(RequestId id) const {
  if (announcements_.Find(id) != nullptr) return "announced";
  const Sequence* sequence = sequences_.Find(id);
  if (sequence == nullptr) return "";
  if (sequence->phase == Phase::kReceiving) return kv_in_.StateOf(id);
  if (sequence->phase == Phase::kPreempted) return "preempted";
  return sequence->phase == Phase::kRunning ? "running" : "ended";
}

DecodeSnapshot DecodeCore::Impl::Snapshot(TimeUs now) const {
  DecodeSnapshot snapshot;
  const bool empty = Empty() && announcements_.all().empty();
  Describe(membership_, steps_, Load(), kv_in_.blocks(), empty, now, &snapshot);
  snapshot.failed = failed_;
  snapshot.finished = finished_;
  snapshot.output_tokens = output_tokens_;
  const KvIn::Counts counts = kv_in_.CountSequences();
  snapshot.announced = static_cast<int64_t>(announcements_.all().size());
  snapshot.granted = counts.granted;
  snapshot.running = sequences_.Count(Phase::kRunning);
  snapshot.preempted = sequences_.Count(Phase::kPreempted);
  snapshot.preemptions = preemptions_;
  snapshot.recomputed_tokens = recomputed_tokens_;
  snapshot.unclaimed = sequences_.CountUnclaimed();
  snapshot.quarantined = counts.quarantined;
  if (const StagingBufferQueue* buffers = kv_in_.staging_buffers(); buffers != nullptr) {
    snapshot.buffers = buffers->buffers();
    snapshot.staging_buffers_held = buffers->buffers() - buffers->free();
    snapshot.staging_buffer_waiting = buffers->waiting();
  }
  if (sequences_.oldest_arrival_us() != kNever) {
    snapshot.oldest_wait_us = now - sequences_.oldest_arrival_us();
  }
  return snapshot;
}

absl::Status DecodeCore::Impl::CheckInvariants() const {
  for (const absl::Status& status :
       {kv_in_.CheckInvariants(), batch_.CheckInvariants(), announcements_.CheckInvariants(),
        sequences_.CheckInvariants(), expected_streams_.CheckInvariants(),
        block_order_.CheckInvariants(), steps_.CheckInvariants(),
        membership_.CheckInvariants(Held())}) {
    if (!status.ok()) return status;
  }
  const auto violated = [](int number, RequestId id, const char* what) {
    return absl::InternalError(absl::StrCat("DecodeCore ", number, ": ", ToString(id), " ", what));
  };
  for (const auto& [id, sequence] : sequences_.all()) {
    const bool whole = sequence.phase == Phase::kEnded && sequence.status.ok();
    if (sequence.phase == Phase::kEnded && !sequence.told &&
        (!whole || sequence.stream != Stream::kUnattached)) {
      return violated(5, id, "has ended, and the orchestrator was not told");
    }
    if (kv_in_.Has(id)) {
      if (sequence.phase == Phase::kPreempted) return violated(7, id, "is preempted, with blocks");
      const bool grown = sequence.phase != Phase::kRunning || block_order_.Wants(id) ||
                         kv_in_.Covers(id, sequence.KnownTokens());
      if (!grown) return violated(7, id, "has a table that is too short, and wants no block");
      continue;
    }
    if (sequence.phase == Phase::kPreempted) continue;
    if (batch_.InFlight(id)) return violated(3, id, "runs without blocks");
    if (sequence.phase != Phase::kEnded) return violated(5, id, "lives without blocks");
    if (sequence.stream == Stream::kClosed) return violated(5, id, "is kept without a reason");
  }
  for (const auto& [id, announced] : announcements_.all()) {
    const Sequence* sequence = sequences_.Find(id);
    if (sequence != nullptr && sequence->phase != Phase::kEnded) {
      return violated(5, id, "is announced while another epoch lives");
    }
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
