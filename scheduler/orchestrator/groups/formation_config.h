// How an orchestrator decides about the formations of its groups.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "scheduler/base/formation_messages.h"
#include "scheduler/orchestrator/groups/formation_policy.h"
#include "scheduler/orchestrator/groups/formation_switch.h"
#include "scheduler/orchestrator/groups/shared_mode_policy.h"

namespace skein::scheduler::orchestrator {

// What a profile says of bound groups of one model on one device.
struct FormationProfile {
  // How many times as fast as one instance a group of so many makes the tokens of few sequences.
  std::map<int32_t, double> gains;  // by size, from 2 on
  // By size, which each fits, where it was measured. Without one all steps run in TP.
  std::map<int32_t, ShiftRule> shifts = {};
  // Of instances that share their weights: from this batch of one instance on WaS hides the reads
  // of weights (SiDP's B_th). Empty: not measured.
  std::optional<int64_t> shared_batch_threshold = {};
};

struct FormationConfig {
  // Whether the policy binds and releases. Otherwise only people do.
  bool automatic = true;
  FormationPolicyConfig policy = {};
  FormationLimits limits = {};
  // How own sequences fare when the policy binds, and for a reason that has another way. An order
  // of an operator has its own. For a priority they end first, but not at the lead: were they there
  // when the group runs, each of their steps would delay every urgent request. Where that has
  // failed, such as because they did not end in time, they pause (Formations).
  OwnSequences own = OwnSequences::kShare;
  std::map<BindReason, OwnSequences> own_for = {
      {BindReason::kPriority, OwnSequences::kSoftPreempt}};
  OwnSequences OwnFor(BindReason reason) const {
    const auto found = own_for.find(reason);
    return found == own_for.end() ? own : found->second;
  }
  // For so long a long request waits while no group can be bound for it (LongRequests).
  TimeUs long_wait_us = 10 * kSecondUs;
  // How the mode of instances that share their weights is chosen. The threshold is that of models
  // whose profile has none.
  SharedModeConfig shared = {};
  // By model; of "": for models that have none of their own. Without one nothing is bound for load
  // or priority, because nothing says that it gains.
  std::map<std::string, FormationProfile> profiles = {};
};

}  // namespace skein::scheduler::orchestrator
