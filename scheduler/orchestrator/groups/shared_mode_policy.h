// SharedModePolicy: whether instances that share their weights are to work in WaS or in CaS (SiDP,
// section 4.3, "Consistent mode switching"). One for each formation `shared`. It decides only;
// FormationSwitch has the members change.
//
// Rule. The batch of a formation is the mean of its members' batches: the sequences that each
// decodes now. A member without work counts as 0, and nothing is awaited of it. Below the
// threshold (the paper's B_th: from that batch on the compute of a layer hides the read of the next
// one's weights) CaS is faster, from it on WaS.
//
// It does not flap:
//   hysteresis   CaS begins below the threshold, and ends only at `leave_factor` times it;
//   persistence  the batch is on that side for `persists_us` without a break;
//   dwell        two changes, or attempts at one, are `min_dwell_us` apart. So is the first one
//                from the begin of the formation.
// Without a threshold the mode is WaS: nothing says from which batch on CaS would be slower.
//
// No clock: equal calls give equal choices. Sans-io; one thread. A call costs O(members).
//
// Invariants (CheckInvariants): without a threshold no batch is remembered as being on the other
// side of it; what is remembered is of the present mode.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/shared_mode.h"
#include "scheduler/base/time.h"

namespace skein::scheduler::orchestrator {

struct SharedModeConfig {
  // B_th, in sequences of one instance. Empty: not measured for this model and device.
  std::optional<int64_t> threshold = {};
  double leave_factor = 1.25;  // at least 1
  TimeUs persists_us = 5 * kSecondUs;
  TimeUs min_dwell_us = 60 * kSecondUs;
};
// INVALID_ARGUMENT names the field that is impossible.
absl::Status CheckSharedMode(const SharedModeConfig& config);

class SharedModePolicy {
 public:
  struct Choice {
    SharedMode mode = SharedMode::kWas;
    std::string why;  // for people; also why it is not the other one yet
  };

  // REQUIRES: CheckSharedMode(config).ok().
  explicit SharedModePolicy(const SharedModeConfig& config) : config_(config) {}

  // The mode in which a formation of these batches begins. Changes nothing.
  Choice First(const std::vector<int64_t>& batches) const;
  // The formation works in this mode from now on, or goes on in it because a change has failed.
  void Began(SharedMode mode, TimeUs now);
  // The mode in which it is to work. REQUIRES: Began; `now` does not run backwards.
  Choice Look(const std::vector<int64_t>& batches, TimeUs now);

  SharedMode mode() const { return mode_; }
  absl::Status CheckInvariants() const;

 private:
  bool IsBeyond(double batch) const;  // the limit at which the mode is to change

  SharedModeConfig config_;
  SharedMode mode_ = SharedMode::kWas;
  TimeUs since_us_ = 0;                   // of the mode
  std::optional<TimeUs> beyond_us_ = {};  // since when the batch asks for the other mode
};

}  // namespace skein::scheduler::orchestrator
