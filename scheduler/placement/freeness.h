// Chooses the decode instance for a request: the one with the highest freeness, the ratio of
// available slots to active batch size. Blocks of requests whose KV is still being transferred
// count as used ("virtual usage"). Tetris section 5.2, after Llumnix.
//
// A decode instance takes the blocks of a prompt before its transfer starts, so its reported free
// blocks already exclude the virtual usage it knows of; those that it keeps for the growth of its
// requests do not count as free either. `unreported` is the rest: placed there since its last
// report. Requests on their way count as part of the batch; otherwise a burst that finds many free
// blocks would all go to one instance.
//
// The freeness of an instance that was found slow beside its peers counts less, by its slowness.
//
// An instance whose steps take many times as long as another's (a device that is throttled, or
// shared) is the last choice: it still gets what no other has room for, and an idle one is never
// slow, so that it is tried again.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/base/ids.h"

namespace skein::scheduler {

struct DecodeCandidate {
  InstanceId instance;
  int64_t free_blocks = 0;        // as reported, without those claimed
  int64_t unreported_blocks = 0;  // of requests placed there after the report
  int64_t active_requests = 0;    // running or on their way, as reported
  int64_t unreported_requests = 0;
  double step_s = 0;  // what a step takes now, about; 0: idle, or not known
  double weight = 1;  // below 1: it is slow beside its peers, and gets less
  bool operator==(const DecodeCandidate&) const = default;

  int64_t AvailableBlocks() const {
    return free_blocks > unreported_blocks ? free_blocks - unreported_blocks : 0;
  }
};

inline double Freeness(const DecodeCandidate& candidate) {
  return candidate.weight * static_cast<double>(candidate.AvailableBlocks()) /
         static_cast<double>(candidate.active_requests + candidate.unreported_requests + 1);
}

inline constexpr double kSlowStepFactor = 5;

// A bound group that is kept for urgent requests gets others, too, while it is so many times as
// free as the freest of the other instances: they gain more by its idle steps than its requests
// lose. Half of a group for a few urgent requests, and all others in the rest, would be as slow for
// all as it is fast for those few.
inline constexpr double kDedicatedReserve = 4;

// The candidate with the highest freeness that has room for `blocks`; the smallest id of equals;
// empty if none has room. One whose steps take more than kSlowStepFactor times as long as the
// fastest candidate's is taken only if no other has room.
inline std::optional<InstanceId> PickDecode(const std::vector<DecodeCandidate>& candidates,
                                            int64_t blocks) {
  double least_step_s = 0;
  for (const DecodeCandidate& candidate : candidates) {
    const double step_s = candidate.step_s;
    if (step_s > 0 && (least_step_s == 0 || step_s < least_step_s)) least_step_s = step_s;
  }
  const auto pick = [&](bool slow) {
    std::optional<InstanceId> best;
    double best_freeness = 0;
    for (const DecodeCandidate& candidate : candidates) {
      if (candidate.AvailableBlocks() < blocks) continue;
      if ((candidate.step_s > kSlowStepFactor * least_step_s) != slow) continue;
      const double freeness = Freeness(candidate);
      if (!best.has_value() || freeness > best_freeness ||
          (freeness == best_freeness && candidate.instance < *best)) {
        best = candidate.instance;
        best_freeness = freeness;
      }
    }
    return best;
  };
  const std::optional<InstanceId> best = pick(/*slow=*/false);
  return best.has_value() ? best : pick(/*slow=*/true);
}

}  // namespace skein::scheduler
