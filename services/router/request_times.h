// Where the time of one choice went.
#pragma once

#include <cstdint>

namespace skein::services {

// Microseconds. Each is measured by one process's own clock, or is the sum of such: the clocks of
// two machines are never compared. So queue + prefill + handoff is TTFT but for what no clock saw:
// messages on their way, tokenising, and the first token's way back.
struct RequestTimes {
  int64_t queue_us = 0;    // from its admission to its first step: router, plan, prefill instance
  int64_t plan_us = 0;     // of this, from the orchestrator's hearing of it to its plan
  int64_t prefill_us = 0;  // from its first step to the end of its last
  int64_t handoff_us = 0;  // from then until the last of its KV was at the decode instance
  int64_t ttft_us = 0;     // from the HTTP request's arrival to the first token; 0: no token came
  int64_t decode_us = 0;   // from the first token to the last one
  int64_t total_us = 0;    // from the HTTP request's arrival to the choice's end
};

}  // namespace skein::services
