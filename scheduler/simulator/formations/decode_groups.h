// Simulates decode instances in groups, under a static formation or under the orchestrator's own
// group control (ChooseFormation, FormationSwitch). A request is placed when its prefill starts, by
// freeness (scheduler/placement/freeness.h), at an instance that is open to it: not at a member of
// a bound group that does not lead it. If none has room it waits, in order of arrival. Its KV is
// there when its prefill ends. Deterministic.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/orchestrator/groups/formation_config.h"
#include "scheduler/simulator/decode_run.h"
#include "scheduler/simulator/formations/decode_group.h"
#include "scheduler/simulator/formations/formation_driver.h"
#include "scheduler/simulator/formations/group_record.h"
#include "scheduler/simulator/prefill_run.h"
#include "scheduler/simulator/workload.h"

namespace skein::scheduler {

// Bound groups run steps of more tokens than the profile's shift_tokens of their size in SP, and
// all steps in TP if it has none.
struct DecodeFormation {
  enum class Kind {
    kBound,   // for good: all instances that can be bound by `size`; 1: each alone
    kShift,   // for good: the widest group of each node; its profile has shift_tokens
    kHybrid,  // for good: one half of each node's instances as one group, the others alone
    kAuto,    // by load
  };
  Kind kind = Kind::kBound;
  int32_t size = 1;  // of kBound
  std::string name = "independent";

  // independent, bound(2), bound(4), bound(8), shift, hybrid, auto. NOT_FOUND for another name.
  static absl::StatusOr<DecodeFormation> Parse(std::string_view name);
  // Of what is bound for good on nodes of so many decode instances; 1: nothing.
  int32_t SizeIn(int32_t node_instances) const;
};

struct DecodeGroupsOptions {
  DecodeFormation formation;
  int32_t node_instances = 8;    // decode instances of a node: a group
  int64_t batch_sequences = 64;  // most of a step
  orchestrator::FormationProfile profile;
  DriverOptions driver = {.release = Switch::kSequential, .decide_us = kSecondUs / 4};
};
// INVALID_ARGUMENT names the field: a formation that is wider than a node's instances, or binds
// nothing there; a profile without shift_tokens for kShift; a count that is not positive;
// CheckFormationPolicy.
absl::Status CheckDecodeGroups(const DecodeOptions& decode, const DecodeGroupsOptions& groups);

struct DecodeFigures {
  // Time per output token after the first, of requests with more than one.
  double tpot_p50_s = 0, tpot_p90_s = 0, tpot_p99_s = 0;
  // From the end of prefill until the first decode step with the request begins.
  double queue_p50_s = 0, queue_p90_s = 0, queue_p99_s = 0;
  // The most tokens of decode steps in any kDecodePeakWindowUs, a second.
  double peak_tokens_per_s = 0;
  std::array<double, kStepKinds> step_share = {};  // by StepKind, as members count steps
  SwitchCounts switches;
};
inline constexpr TimeUs kDecodePeakWindowUs = 5 * kSecondUs;

struct DecodeGroupsRun {
  DecodeRun run;  // its tbt has, of each request, the first gap, and the mean of the later ones
  DecodeFigures figures;
  std::vector<DecodeOutcome> outcomes;  // in the order of the requests
};

// REQUIRES CheckDecode and CheckDecodeGroups; outcomes in the order of the requests.
DecodeGroupsRun RunDecodeGroups(const std::vector<SimRequest>& requests,
                                const std::vector<PrefillOutcome>& outcomes,
                                const DecodeOptions& decode, const DecodeGroupsOptions& groups);

// Of (when, how many), ascending: the most in any window of this length, (t - window, t].
int64_t MostInWindow(const std::vector<std::pair<TimeUs, int64_t>>& tokens, TimeUs window_us);

}  // namespace skein::scheduler
