// The queue time of a prefill instance: the estimated time for the prompt tokens it still has to
// compute (Tetris sections 4.2 and 5.1 with one instance per request; the estimate is linear in
// tokens, at the rate the instance measures). RateOrder (rate_order.h) chooses by it.
#pragma once

#include <cstdint>

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

}  // namespace skein::scheduler
