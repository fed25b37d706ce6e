// RunTenants: requests of several tenants through the queues of one cell, in simulated time: a
// router's (ClientRequests), those of prefill instances (PlanQueue, BatchScheduler), and the line
// for decode room (DecodePlacement). The queues are the ones that the processes have; what computes
// is replaced by the time that it takes. So its figures depend on no machine.
//
// What is left out: messages and handoffs take no time, no step is launched ahead, a decode
// instance has places for so many sequences instead of blocks, and each request has a plain plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/time.h"
#include "scheduler/batch/batch_scheduler.h"
#include "scheduler/vocabulary/decode_times.h"

namespace skein::scheduler {

// A tenant's requests come at random (Poisson), with lengths between half and one and a half times
// those given, each as likely as any other.
struct TenantLoad {
  std::string name;
  double requests_per_s = 1;
  int64_t prompt_tokens = 1024;
  int64_t output_tokens = 64;
  int64_t weight = 1;
  TimeUs ttft_goal_us = 0;  // 0: none
};

struct TenantRunConfig {
  std::vector<TenantLoad> loads;
  double seconds = 60;       // in which requests come
  bool tell_tenants = true;  // false: all requests are nobody's
  bool check = false;        // all invariants, at every event
  int prefill_instances = 2;
  int decode_instances = 2;
  int64_t decode_sequences = 64;  // of a decode instance
  int64_t max_streams = 1024;
  int64_t max_queued = 1024;
  int64_t ahead = 4;  // PlanQueue
  BatchLimits prefill = {};
  double prefill_step_s = 0.002;
  double prefill_token_s = 60e-6;
  DecodeTimes decode = {.step_s = 0.015, .sequence_s = 20e-6};
  uint64_t seed = 1;
};

struct TenantFigures {
  int64_t sent = 0;
  int64_t refused = 0;  // 429
  int64_t goals_met = 0, goals_missed = 0;
  std::vector<double> ttft_s;  // of those that ended, by their ends
  std::vector<double> tpot_s;
};

struct TenantRun {
  std::vector<TenantFigures> tenants;  // as TenantRunConfig::loads
  double end_s = 0;
  absl::Status status;  // an invariant that did not hold
};

// The same config gives the same run. REQUIRES: prompts of at least two tokens; the loads' names
// differ.
TenantRun RunTenants(const TenantRunConfig& config);

// Nearest rank; 0 of none.
double PercentileOf(std::vector<double> values, double share);

}  // namespace skein::scheduler
