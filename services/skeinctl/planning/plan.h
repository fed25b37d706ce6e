// skeinctl plan: the prefill plan of a prompt for a given cluster state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/plan/cdsp/cdsp_planner.h"
#include "scheduler/plan/latency/latency_model.h"
#include "services/flags/flags.h"

namespace skein::services {

struct PlanFlags {
  std::string profile;
  int64_t node_size = 8;
  double improvement_rate = 0;
  std::string policy = "tetris";

  std::string format = "text";

  void Register(FlagSet* set);
};

// Reads one JSON object per line from standard input,
//   {"prompt_tokens": 131072, "queue_s": [0, 0.31, ...]}      (a queue time an instance)
// and writes one per line,
//   {"ttft_s": ..., "chunks": [{"tokens": ..., "instances": [...], "start_s": ..., "end_s": ...}]}
// Exit code: 0; 2 for an unreadable profile or wrong lines. A wrong line is reported with its
// number and the error: the first one ends the command; with --format json each is answered in its
// place.
int RunPlan(const PlanFlags& flags);

enum class PlanPolicy {
  kTetris,   // algorithms 1 to 3
  kSingle,   // algorithm 2: one chunk
  kRolling,  // the best plan the planner finds, beyond algorithm 1's bounds
};
absl::StatusOr<PlanPolicy> ParsePlanPolicy(std::string_view name);

// Answers lines; reuses a planner while the number of instances stays the same.
class PlanLines {
 public:
  // `model` must outlive it.
  PlanLines(const scheduler::LatencyModel& model, int node_size, double improvement_rate,
            PlanPolicy policy);

  // The answer, without a newline. INVALID_ARGUMENT names the field and the value.
  absl::StatusOr<std::string> Answer(std::string_view line);

 private:
  const scheduler::LatencyModel& model_;
  const int node_size_;
  const PlanPolicy policy_;
  scheduler::PlanOptions options_;
  std::optional<scheduler::CdspPlanner> planner_;
  scheduler::PrefillPlan plan_;
};

}  // namespace skein::services
