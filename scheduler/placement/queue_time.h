// Chooses the prefill instance for a request: the one with the least queue time, the estimated time
// for the prompt tokens it still has to compute (Tetris sections 4.2 and 5.1 with one instance per
// request; the estimate is linear in tokens, at the rate the instance measures).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/base/ids.h"

namespace skein::scheduler {

struct PrefillCandidate {
  InstanceId instance;
  int64_t queued_tokens = 0;      // as reported
  int64_t unreported_tokens = 0;  // of requests assigned there after the report
  double tokens_per_second = 1;   // > 0
  bool operator==(const PrefillCandidate&) const = default;
};

inline double QueueSeconds(const PrefillCandidate& candidate) {
  return static_cast<double>(candidate.queued_tokens + candidate.unreported_tokens) /
         candidate.tokens_per_second;
}

// The instance that would finish a prompt of `prompt_tokens` first; the smallest id of equals. It
// walks over all: RateOrder (rate_order.h) keeps them in order.
inline std::optional<InstanceId> PickPrefill(const std::vector<PrefillCandidate>& candidates,
                                             int64_t prompt_tokens) {
  std::optional<InstanceId> best;
  double best_seconds = 0;
  for (const PrefillCandidate& candidate : candidates) {
    const double seconds =
        QueueSeconds(candidate) + static_cast<double>(prompt_tokens) / candidate.tokens_per_second;
    if (!best.has_value() || seconds < best_seconds ||
        (seconds == best_seconds && candidate.instance < *best)) {
      best = candidate.instance;
      best_seconds = seconds;
    }
  }
  return best;
}

}  // namespace skein::scheduler
