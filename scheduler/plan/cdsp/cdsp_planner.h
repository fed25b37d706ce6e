// Tetris's planner: chunkwise dynamic sequence parallelism for one prompt and a given cluster
// state. Tetris section 5.1, algorithms 1, 2 and 3 and equation 2.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "scheduler/plan/latency/latency_model.h"
#include "scheduler/plan/plan.h"

namespace skein::scheduler {

// Which chunked plans are considered.
enum class PlanScope {
  // Algorithm 1 unchanged: no chunk uses an instance that the single chunk would not use.
  kPaper,
  // Beyond the paper: also plans that start on other nodes, and plans that end on more instances
  // than the single chunk's, if they pass the improvement rate.
  kWide,
};

struct PlanOptions {
  // A larger SP size is used only if it shortens the time to first token by more than this
  // fraction, in [0, 1). 0: the shortest time, whatever the cost to other requests. Rises with
  // load.
  double improvement_rate = 0;
  // A shorter chunk is not worth a step of its own. Does not limit the prompt.
  int64_t min_chunk_tokens = 256;
  PlanScope scope = PlanScope::kPaper;
};

// INVALID_ARGUMENT names the invalid field: a cluster without instances or smaller than the
// smallest SP size; a wrong number of queue times, or negative or infinite ones; a prompt without
// tokens or above kMaxPromptTokens; an improvement rate outside [0, 1).
inline constexpr int64_t kMaxPromptTokens = int64_t{1} << 40;
absl::Status CheckPlanInput(const LatencyModel& model, const Cluster& cluster,
                            absl::Span<const double> queue_s, int64_t prompt_tokens,
                            const PlanOptions& options);

// Reuses memory: a plan allocates nothing once `plan` has grown. One thread at a time. Equal input
// gives an equal plan, whatever was planned before. `model` must outlive it.
//
// All methods REQUIRE what CheckPlanInput checks; otherwise the process ends. queue_s[i] is the
// time until instance i is free, in seconds. Time is bounded for any input: O(n log^2 n) for n
// instances plus at most kMaxExplored search states.
class CdspPlanner {
 public:
  static constexpr int kMaxExplored = 20000;

  CdspPlanner(const LatencyModel& model, const Cluster& cluster);
  ~CdspPlanner();
  CdspPlanner(CdspPlanner&&) noexcept;

  // Algorithm 1. Never worse than PlanSingleChunk with the same options; kWide is never worse than
  // kPaper.
  void Plan(absl::Span<const double> queue_s, int64_t prompt_tokens, const PlanOptions& options,
            PrefillPlan* plan);
  // Algorithm 2 only: the whole prompt is one chunk.
  void PlanSingleChunk(absl::Span<const double> queue_s, int64_t prompt_tokens,
                       const PlanOptions& options, PrefillPlan* plan);

  // The whole prompt as one chunk on the best group of each SP size that fits the cluster, by size:
  // the candidates of algorithm 2.
  struct SingleChunk {
    int sp = 0;
    double start_s = 0;
    double ttft_s = 0;
  };
  std::vector<SingleChunk> SingleChunks(absl::Span<const double> queue_s, int64_t prompt_tokens);
  // The same for the input of the last Plan or PlanSingleChunk, which has found them: costs
  // nothing. The reference holds until the next plan.
  const std::vector<SingleChunk>& LastSingleChunks() const;

  const LatencyModel& model() const;
  const Cluster& cluster() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The same for one call.
PrefillPlan PlanCdsp(const LatencyModel& model, const Cluster& cluster,
                     absl::Span<const double> queue_s, int64_t prompt_tokens,
                     const PlanOptions& options);

}  // namespace skein::scheduler
