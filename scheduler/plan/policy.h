// The planning policies, by their names in flags.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/plan/latency/latency_model.h"
#include "scheduler/plan/plan.h"

namespace skein::scheduler {

struct Policy {
  enum class Kind { kTetris, kSingle, kGreedy, kFixed, kRolling, kRandom, kPipeline, kLoongServe };

  std::string name = "tetris";
  Kind kind = Kind::kTetris;
  int sp = 0;            // of kFixed
  int stages = 0;        // of kPipeline
  bool dynamic = false;  // of kPipeline: slices shrink as the history grows

  // tetris, single (Tetris without chunks), greedy (LoongServe's, disaggregated), fixedN (N an SP
  // size), rolling, random (to find faults; not simulated); simulated only: pipelineN and
  // pipelineNdynamic (SGLang's, N stages), loongserve (its one pool). INVALID_ARGUMENT names an
  // unknown policy.
  static absl::StatusOr<Policy> Parse(std::string_view name);

  // Whether it exists only as a baseline of the simulator.
  bool SimulatedOnly() const { return kind == Kind::kPipeline || kind == Kind::kLoongServe; }
};

// Whether the policy can run there. INVALID_ARGUMENT names what is missing (an SP size).
absl::Status CheckPolicy(const Policy& policy, const LatencyModel& model, const Cluster& cluster);

}  // namespace skein::scheduler
