// skeinctl simulate --offline: jobs without a user who waits, on all weights at each instance (DP,
// TP and both) and on shared weights (SiDP), for a model and devices that you do not have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/simulator/offline/offline_job.h"
#include "services/flags/flags.h"

namespace skein::services {

struct OfflineFlags {
  bool offline = false;
  std::string model = "llama-3.1-70b";
  std::string device = "h200";
  std::string link;
  double memory_share = 0.9;
  int64_t tp = 0;
  int64_t dp = 0;
  std::string slots = "tiles";
  std::string reads = "slots";
  int64_t batch = 128;
  scheduler::OfflineLoad load;
  int64_t step_tokens = 8192;
  double hysteresis = 0.1;

  void Register(FlagSet* set);
};

struct OfflineRow {
  std::string strategy;  // full, was, cas, sidp
  int64_t tp = 1, dp = 1;
  scheduler::WeightMemory memory;  // with the slots that the job has
  // The other reading of the slots; equal with full weights.
  int64_t kv_tokens_layers = 0, kv_tokens_tiles = 0;
  std::optional<int64_t> threshold;  // of shared weights; null: WaS is slower up to kNoThreshold
  double step_s = 0;                 // of `batch` sequences at each instance
  std::string refused;               // why there is no job
  std::string batching;              // the better one
  scheduler::OfflineJobResult job;
};

struct OfflineComparison {
  std::string model, device;
  double link_bytes_per_s = 0;
  int64_t batch = 0;
  int64_t context = 0;  // tokens, of step_s and threshold
  scheduler::OfflineLoad load;
  std::vector<OfflineRow> rows;
};

// INVALID_ARGUMENT or NOT_FOUND name the flag and its value. `devices`: of the group.
absl::StatusOr<OfflineComparison> CompareOffline(const OfflineFlags& flags, int64_t devices);

// Exit code: 0; 2 for wrong input, named on stderr. `requests` of 0 are load.requests.
int RunOffline(const OfflineFlags& flags, int64_t devices, int64_t requests, int64_t seed,
               const std::string& format);

// Pure: for people, with a legend; one JSON object a line for programs.
std::string OfflineTable(const OfflineComparison& comparison);
std::string OfflineJsonLines(const OfflineComparison& comparison);

}  // namespace skein::services
