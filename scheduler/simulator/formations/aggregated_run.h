// Simulates a group of instances that serve prompts and decode in one batch (aggregated), under a
// static layout or under the formation policy: the shape in which Flying Serving and Shift
// Parallelism were measured. Deterministic.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/base/formation_messages.h"
#include "scheduler/simulator/formations/formation_driver.h"
#include "scheduler/simulator/formations/group_record.h"
#include "scheduler/simulator/formations/group_world.h"
#include "scheduler/simulator/formations/phased_load.h"
#include "scheduler/simulator/formations/step_time.h"

namespace skein::scheduler {

struct LayoutPolicy {
  enum class Kind {
    kDp,      // each instance alone
    kTp,      // all in one, every step in TP
    kShift,   // all in one, SP above the threshold (Shift Parallelism)
    kHybrid,  // one half bound, in TP; the other alone
    kFlying,  // the formation policy, bound steps in TP
    kAuto,    // the formation policy, bound steps in SP above the threshold: Skein
  };
  Kind kind = Kind::kAuto;
  std::optional<OwnSequences> own = {};  // DriverOptions::own; of kFlying
  std::string name = "auto";

  bool is_static() const { return kind != Kind::kFlying && kind != Kind::kAuto; }
  // dp, tp, shift, hybrid, flying-sequential, flying-soft, flying-hard, flying-share, auto.
  // NOT_FOUND for another name.
  static absl::StatusOr<LayoutPolicy> Parse(std::string_view name);
};

struct AggregatedOptions {
  int64_t devices = 8;
  SequenceLimits limits;
  // StepShare, while own and bound batches both have work; 0: by the tokens that wait.
  double own_share = 0;
  double shift_s = 0;  // what a step takes longer after one in the other mode (TP, SP)
  DriverOptions driver;
};
// INVALID_ARGUMENT names the field: devices that are not base_devices times a power of two; a limit
// out of range; CheckFormationPolicy.
absl::Status CheckAggregated(const AggregatedOptions& options, const StepProfile& profile);

struct PhaseFigures {  // of the requests that arrived in this phase
  int64_t requests = 0;
  double ttft_mean_s = 0, ttft_p50_s = 0, ttft_p90_s = 0;
  double tpot_mean_s = 0, tpot_p50_s = 0;
  double queue_mean_s = 0, queue_p90_s = 0;  // from arrival until its first tokens enter a step
  double gap_max_s = 0;                      // the longest between two tokens of a stream
  double completion_mean_s = 0;              // from arrival to the last token
};

struct AggregatedResult {
  PhaseFigures all, quiet, burst, priority;
  // The most in any peak_window_s seconds: output tokens, and tokens of prompts and output.
  double peak_output_per_s = 0, peak_tokens_per_s = 0;
  double mean_tokens_per_s = 0;
  std::array<double, kStepKinds> step_share = {};  // of the steps, by StepKind
  std::array<double, kStepKinds> time_share = {};  // of the time in steps
  StepParts time;                                  // of all steps: what their time went to
  int64_t shifts = 0;  // between TP and SP, from one bound step to the next
  SwitchCounts switches;
  int64_t refused = 0;
  double end_s = 0;
};
inline constexpr size_t kPeakWindowSeconds = 5;

// REQUIRES CheckAggregated and requests with ascending arrivals.
AggregatedResult RunAggregated(const LayoutPolicy& policy, const StepProfile& profile,
                               const AggregatedOptions& options,
                               const std::vector<GroupRequest>& requests);

}  // namespace skein::scheduler
