// The decode pool, simulated: instances with continuous batching. A request is placed by freeness
// with virtual usage (scheduler/placement/freeness.h, the orchestrator's own code) when its prefill
// starts: its blocks are reserved from then on. It joins the batch at the first step boundary after
// its prefill has ended. If no instance has room it waits, in order of arrival there.
//
// Steps between two changes of a batch are taken at once, in closed form.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/simulator/metrics.h"
#include "scheduler/simulator/prefill_run.h"
#include "scheduler/simulator/workload.h"

namespace skein::scheduler {

// A step of n sequences with K tokens of KV in all takes base + per_sequence n + per_kv_token K.
// The defaults estimate LLaMA3-8B on one node of eight A100 (TP 8): 2 GB of weights a GPU read at
// 1.5 TB/s and launches, 6 ms in all; 128 KiB of KV a token, an eighth at each GPU. The paper gives
// no decode times.
struct DecodeOptions {
  int instances = 2;
  int64_t blocks = 250'000;  // of an instance
  int64_t block_tokens = 16;
  double step_base_s = 6e-3;
  double step_per_sequence_s = 2e-5;
  double step_per_kv_token_s = 1.1e-8;
};

// INVALID_ARGUMENT names the field: a count that is not positive, a time that is negative or not
// finite, a base of 0, or the request that no instance could ever hold.
absl::Status CheckDecode(const DecodeOptions& options, const std::vector<SimRequest>& requests);

struct DecodeRun {
  TimeHistogram tbt;  // all gaps between the tokens of a request, the first one with its waiting
  double busy_instance_s = 0;
  double end_s = 0;      // the last token of all
  double blocked_s = 0;  // sum over requests: placed only after their prefill had ended
  int64_t finished = 0;
};

// REQUIRES CheckDecode; outcomes are as the requests.
DecodeRun RunDecode(const std::vector<SimRequest>& requests,
                    const std::vector<PrefillOutcome>& outcomes, const DecodeOptions& options);

}  // namespace skein::scheduler
