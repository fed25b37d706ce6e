// LoongServe's one elastic pool (SOSP 2024), as Tetris compares with it (sections 2.4, 7.1): a
// baseline. All instances have the same TP size; each serves prompts or decode, as the load wants.
//
// Modelled:
//  - Prompts start in the order of arrival, each alone in its batch (Tetris's experiment:
//    single-request scheduling, the best for the TTFT). A prompt starts as soon as the instances
//    that neither compute a prompt nor decode can hold its KV, on as many of them as make this
//    prompt fastest, whatever the load.
//  - After its prefill its KV is on as few instances as hold it, at no cost (LoongServe's proactive
//    scale-down); the others are free at once.
//  - Decode takes as few instances as hold the KV of all sequences and have batches of at most
//    `sequences_max`; all of them step together. KV of sequences that moves so costs nothing, which
//    favours this baseline.
//  - A sequence has room for all its output from its prefill on; a step reads as much KV as if the
//    output was there. Steps of fewer than all tokens of a gap are spread evenly over it.
// Not modelled: batches of several prompts (LoongServe's dynamic programme), prompts that preempt
// decode for a gain, LoongServe's limits on out-of-order starts, and where instances are.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/plan/latency/latency_model.h"
#include "scheduler/simulator/decode_run.h"
#include "scheduler/simulator/prefill_run.h"
#include "scheduler/simulator/workload.h"

namespace skein::scheduler {

struct ElasticPoolOptions {
  int instances = 32;     // for prompts and decode
  int64_t kv_tokens = 0;  // that an instance holds
  // Of a decode batch. A batch is fixed until its last sequence ends (Tetris, section 2.4), and one
  // prompt a batch makes that one sequence; more is what LoongServe could do with continuous
  // batching.
  int64_t sequences_max = 1;
  // A step of n sequences with K tokens of KV on an instance takes
  // base + per_sequence n + per_kv_token K.
  double step_base_s = 0;
  double step_per_sequence_s = 0;
  double step_per_kv_token_s = 0;

  // The devices of a disaggregated cluster as one pool, of prefill instances only; as many devices
  // decode as compute prompts (Tetris's ratio of 1:1). Where a decode instance has the devices of
  // several prefill instances, each device has so many times the weights and KV to read here.
  static ElasticPoolOptions Of(int prefill_instances, const DecodeOptions& decode);
};

// INVALID_ARGUMENT names the field that is not positive, or the request whose KV exceeds the
// instances of the largest SP size that the pool has.
absl::Status CheckElasticPool(const ElasticPoolOptions& options, const LatencyModel& model,
                              const std::vector<SimRequest>& requests);

struct ElasticPoolRun {
  PrefillRun prefill;
  DecodeRun decode;
};

// REQUIRES CheckWorkload, CheckElasticPool, and a pool at least as large as the model's smallest SP
// size.
ElasticPoolRun RunElasticPool(const std::vector<SimRequest>& requests, const LatencyModel& model,
                              const ElasticPoolOptions& options,
                              const ChunkObserver& observer = nullptr);

}  // namespace skein::scheduler
