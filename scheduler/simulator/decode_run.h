// Simulates the decode pool: instances with continuous batching. A request is placed when its
// prefill starts, by freeness with virtual usage (scheduler/placement/freeness.h, the
// orchestrator's own code), and its blocks are reserved from then on. It joins the batch at the
// first step boundary after its prefill. If no instance has room it waits, in order of arrival.
//
// Steps between two changes of a batch are computed together, in closed form.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/simulator/metrics.h"
#include "scheduler/simulator/prefill_run.h"
#include "scheduler/simulator/workload.h"

namespace skein::scheduler {

// A step of n sequences with K tokens of KV in total takes base + per_sequence n + per_kv_token K.
// The defaults estimate LLaMA3-8B on one node of eight A100 (TP 8): 6 ms for launches and for
// reading 2 GB of weights per GPU at 1.5 TB/s; 128 KiB of KV per token, an eighth on each GPU. The
// paper gives no decode times.
struct DecodeOptions {
  int instances = 2;
  int64_t blocks = 250'000;  // per instance
  int64_t block_tokens = 16;
  double step_base_s = 6e-3;
  double step_per_sequence_s = 2e-5;
  double step_per_kv_token_s = 1.1e-8;
  double step_weights_s = 1.3e-3;  // the part of step_base_s that reads the weights
  int prefill_instances = 8;       // whose devices a decode instance has
};

// INVALID_ARGUMENT names the field: a count that is not positive; a time that is negative or not
// finite; a base of 0; or the request that exceeds every instance.
absl::Status CheckDecode(const DecodeOptions& options, const std::vector<SimRequest>& requests);

struct DecodeRun {
  TimeHistogram tbt;  // all gaps between tokens of a request; the first one includes waiting
  double busy_instance_s = 0;
  double end_s = 0;      // end of the last token
  double blocked_s = 0;  // sum over requests placed only after their prefill had ended
  int64_t finished = 0;
};

// REQUIRES CheckDecode; outcomes in the order of the requests.
DecodeRun RunDecode(const std::vector<SimRequest>& requests,
                    const std::vector<PrefillOutcome>& outcomes, const DecodeOptions& options);

}  // namespace skein::scheduler
