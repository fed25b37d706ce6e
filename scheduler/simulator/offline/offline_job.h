// How long an offline job takes on `ranks` instances: with all weights at each (DP; with one rank
// TP), or with shared weights, in WaS, in CaS, or switched between them by B_th (SiDP, section
// 4.3). Simulated step by step: in WaS and with all weights each rank runs its own steps; in CaS
// all ranks with work run theirs together.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/simulator/offline/decode_iteration.h"
#include "scheduler/simulator/offline/offline_load.h"
#include "scheduler/simulator/offline/weight_memory.h"

namespace skein::scheduler {

enum class OfflineStrategy { kFull, kWas, kCas, kSwitched };

// Section 5.1: a fixed large batch, or one of as many sequences as have room on average.
enum class Batching { kFixed, kAdaptive };
inline constexpr int64_t kFixedBatch = 1024;  // of all ranks; the paper's sections 1 and 3.1

struct OfflineJob {
  OfflineStrategy strategy = OfflineStrategy::kFull;
  Batching batching = Batching::kFixed;
  SlotBytes slots = SlotBytes::kTiles;
  int64_t step_tokens = 8192;
  // Of kSwitched. CaS begins when no request waits and the sequences of a rank, in the mean of all
  // ranks, are below the threshold by this share, and ends when they are above it by this share.
  int64_t threshold = 0;
  double hysteresis = 0.1;
  double min_dwell_s = 10;  // between two switches
};

struct OfflineJobResult {
  double seconds = 0;
  double output_tokens_per_s = 0;
  int64_t rank_sequences = 0;  // the most of a rank's batch, by the batching rule
  int64_t steps = 0;           // of ranks that had work
  int64_t cas_steps = 0;
  int64_t switches = 0;
  int64_t preempted = 0;
  double mean_sequences = 0;  // of a step
  double CasShare() const {
    return steps == 0 ? 0 : static_cast<double>(cas_steps) / static_cast<double>(steps);
  }
};

// INVALID_ARGUMENT: the weights do not fit an instance, or a request does not fit its KV.
absl::Status CheckOfflineJob(const OfflineProfile& profile, int64_t ranks, const OfflineJob& job,
                             const std::vector<OfflineRequest>& requests);
// REQUIRES CheckOfflineJob(steps->profile(), steps->ranks(), job, requests).ok().
OfflineJobResult RunOfflineJob(SharedSteps* steps, const OfflineJob& job,
                               const std::vector<OfflineRequest>& requests);

}  // namespace skein::scheduler
