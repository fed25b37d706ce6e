// Simulates a cluster under a policy: the real planners over a prefill pool (prefill_run.h) and a
// decode pool (decode_run.h), or groups of decode instances (formations/decode_groups.h). Prefill
// does not wait for decode.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "scheduler/plan/improvement_rate.h"
#include "scheduler/plan/latency/latency_model.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/policy.h"
#include "scheduler/plan/rolling/rolling_table.h"
#include "scheduler/simulator/decode_run.h"
#include "scheduler/simulator/formations/decode_groups.h"
#include "scheduler/simulator/prefill_run.h"
#include "scheduler/simulator/workload.h"

namespace skein::scheduler {

struct Tuning {
  ImprovementRateTable improvement_rates = ImprovementRateTable::Constant(0.25);
  RollingTable rolling = RollingTable::Constant({});
};

// REQUIRES CheckWorkload, CheckPolicy, and a cluster at least as large as the smallest SP size. The
// one pool of loongserve has twice as many instances: it also decodes (elastic_pool_run.h), here as
// DecodeOptions' defaults say.
PrefillRun RunPolicy(const Policy& policy, const std::vector<SimRequest>& requests,
                     const LatencyModel& model, const Cluster& cluster, const Tuning& tuning,
                     const ChunkObserver& observer = nullptr);

struct SimulationResult {
  std::vector<double> ttft_s;  // ascending
  double ttft_p50_s = 0;
  double ttft_p99_s = 0;
  double ttft_mean_s = 0;
  double queue_mean_s = 0;  // from arrival to the start of the first chunk
  double tbt_p50_s = 0;
  double tbt_p99_s = 0;
  double requests_per_s = 0;           // offered
  double throughput_tokens_per_s = 0;  // prompt and output, from first arrival to last token
  double utilisation = 0;              // of the prefill instances, until the last prefill ends
  double idle_s = 0;                   // mean idle time of a prefill instance in that period
  double decode_utilisation = 0;
  int64_t requests = 0;
  int64_t chunks = 0;
  std::map<std::pair<int, int>, int64_t> shapes;  // the same by (SP, TP)
  // With groups of decode instances: their figures, and what became of each request.
  std::optional<DecodeFigures> decode;
  std::vector<PrefillOutcome> prefilled;
  std::vector<DecodeOutcome> decoded;
};

// REQUIRES the same as RunPolicy, and CheckDecode; for loongserve also CheckElasticPool. `groups`:
// decode instances are in groups, for which CheckDecodeGroups holds; loongserve, which has one pool
// of all instances, has none.
SimulationResult Simulate(const Policy& policy, const std::vector<SimRequest>& requests,
                          const LatencyModel& model, const Cluster& cluster, const Tuning& tuning,
                          const DecodeOptions& decode, const ChunkObserver& observer = nullptr,
                          const DecodeGroupsOptions* groups = nullptr);

// Times to first token, in the order of the requests.
std::vector<double> TtftSeconds(const std::vector<SimRequest>& requests, const PrefillRun& run);

}  // namespace skein::scheduler
