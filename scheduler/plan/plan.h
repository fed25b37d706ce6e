// A prefill plan for one prompt, and the cluster it is made for.
#pragma once

#include <cstdint>
#include <vector>

namespace skein::scheduler {

// Instances 0 ... instances - 1; instance i is on node i / node_size. The last node may be smaller.
struct Cluster {
  int instances = 0;
  int node_size = 0;

  int nodes() const { return (instances + node_size - 1) / node_size; }
};

// Consecutive tokens of the prompt, computed by all of `instances` together.
struct ChunkPlan {
  int64_t tokens = 0;
  std::vector<int> instances;  // ascending; as many as the SP size
  double start_s = 0;          // relative to the moment of planning
  double end_s = 0;
  // They run it as (SP, TP) = (instances / tp, tp). Planners leave it at 1: which shapes instances
  // can run is known when they have their ranks (tensor_groups.h).
  int tp = 1;

  bool operator==(const ChunkPlan&) const = default;
};

// Invariants, by number (CheckPlan in plan_check.h names them):
//   1. The chunks' tokens are positive and sum to the prompt's.
// 2. The instances of a chunk contain those of the previous chunk.
// 3. A chunk starts when the previous one has ended and all its instances are free.
//   4. end_s is start_s plus the latency model's time; ttft_s is the last end_s.
struct PrefillPlan {
  double ttft_s = 0;
  std::vector<ChunkPlan> chunks;  // in the prompt's order, not empty

  bool operator==(const PrefillPlan&) const = default;
};

}  // namespace skein::scheduler
