// What DecodeCore shows of itself: load, snapshot, deadlines, invariants.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "scheduler/worker/decode/decode_impl.h"

namespace skein::scheduler {

// Not of blocks in quarantine: they go away with the process. After the grace period of a drain
// only the step in flight is waited for.
bool DecodeCore::Impl::Empty() const {
  return sequences_.all().empty() || (clock_.now >= drain_end_us_ && !running_.InFlight());
}

WorkerLoad DecodeCore::Impl::Load() const {
  WorkerLoad load = LoadOf(membership_, steps_, kv_in_.blocks(), clock_.now);
  load.queued_requests = sequences_.Count(Phase::kReceiving) + sequences_.Count(Phase::kPreempted);
  load.running_requests = sequences_.Count(Phase::kRunning) + sequences_.Count(Phase::kBound);
  load.queued_tokens = running_.PendingPromptTokens();
  load.claimed_blocks = running_.ClaimedBlocks();
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
  for (const auto& [id, announced] : orders_.all()) {
    held.push_back({.id = id, .epoch = announced.epoch, .opened = false});
  }
  return held;
}

TimeUs DecodeCore::Impl::NextDeadline() const {
  const TimeUs listened = std::min(sequences_.NextAttachEnd(), kv_in_.NextDeadline());
  TimeUs next = std::min({membership_.NextDeadline(), clock_.listening.NextTick(listened),
                          orders_.NextDeadline(), opening_.NextDeadline(), group_.NextTick(),
                          shared_.NextTick(), extra_.NextDeadline(),
                          steps_.engine().NextDeadline(/*may_probe=*/!membership_.leaving())});
  if (!Empty() && clock_.now < drain_end_us_) next = std::min(next, drain_end_us_);
  const bool may_ask = membership_.connected() && steps_.engine().ok();
  if (may_ask && sequences_.CountLive() > 0) next = std::min(next, moves_.NextDeadline());
  return next;
}

std::string_view DecodeCore::Impl::StateOf(RequestId id) const {
  if (orders_.Find(id) != nullptr) return "announced";
  const Sequence* sequence = sequences_.Find(id);
  if (sequence == nullptr) return "";
  if (sequence->phase == Phase::kReceiving) return kv_in_.StateOf(id);
  if (sequence->phase == Phase::kPreempted) return "preempted";
  if (sequence->phase == Phase::kBound) return "bound";
  return sequence->phase == Phase::kRunning ? "running" : "ended";
}

DecodeSnapshot DecodeCore::Impl::Snapshot(TimeUs now) const {
  DecodeSnapshot snapshot;
  const bool empty = Empty() && orders_.all().empty();
  Describe(membership_, steps_, Load(), kv_in_.blocks(), empty, now, &snapshot);
  snapshot.failed = ends_.failed();
  snapshot.finished = ends_.finished();
  snapshot.output_tokens = output_tokens_;
  snapshot.asked_to_move = moves_.asked();
  const KvIn::Counts counts = kv_in_.CountSequences();
  snapshot.announced = static_cast<int64_t>(orders_.all().size());
  snapshot.granted = counts.granted;
  snapshot.running = sequences_.Count(Phase::kRunning);
  snapshot.preempted = sequences_.Count(Phase::kPreempted);
  snapshot.bound = sequences_.Count(Phase::kBound);
  snapshot.group_blocks = group_.batch_blocks();
  snapshot.bound_kv = group_.batch_kv();
  snapshot.preemptions = running_.preemptions() + group_.preemptions();
  snapshot.recomputed_tokens = running_.recomputed_tokens();
  snapshot.unclaimed = sequences_.CountUnclaimed();
  snapshot.quarantined = counts.quarantined;
  if (const StagingBufferQueue* buffers = kv_in_.staging_buffers(); buffers != nullptr) {
    snapshot.buffers = buffers->buffers();
    snapshot.staging_buffers_held = buffers->buffers() - buffers->free();
    snapshot.staging_buffer_waiting = buffers->waiting();
  }
  return snapshot;
}

absl::Status DecodeCore::Impl::CheckGaps() const {
  size_t streams = 0;
  for (const auto& [id, sequence] : sequences_.all()) {
    streams += sequence.stream == Stream::kAttached && !sequence.output->empty();
  }
  if (streams == gaps_.streams()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("DecodeCore 8: ", streams,
                                          " streams are attached and have had a token, but ",
                                          gaps_.streams(), " are watched for gaps"));
}

absl::Status DecodeCore::Impl::CheckInvariants() const {
  for (const absl::Status& status :
       {kv_in_.CheckInvariants(group_.batch_blocks()), group_.CheckInvariants(),
        shared_.CheckInvariants(), sequences_.CheckInvariants(),
        expected_streams_.CheckInvariants(), steps_.CheckInvariants(), running_.CheckInvariants(),
        ends_.CheckInvariants(), orders_.CheckInvariants(), opening_.CheckInvariants(),
        membership_.CheckInvariants(Held()), CheckGaps()}) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
