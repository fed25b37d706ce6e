// skeinctl simulate --decode-formations: decode instances in groups, under static formations and
// under the orchestrator's policy.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/simulator/formations/decode_groups.h"
#include "services/flags/flags.h"

namespace skein::services {

struct DecodeFormationFlags {
  std::string formations;  // empty: instances that only work alone, without steps launched ahead
  int64_t node_size = 8;
  int64_t batch_sequences = 64;
  scheduler::orchestrator::FormationPolicyConfig policy;
  double dwell_s = static_cast<double>(policy.min_dwell_us) / scheduler::kSecondUs;
  std::string requests;  // file

  void Register(FlagSet* set);
  // One for each formation that is named. INVALID_ARGUMENT names the flag.
  absl::StatusOr<std::vector<scheduler::DecodeGroupsOptions>> Options(
      const scheduler::DecodeOptions& decode,
      const scheduler::orchestrator::FormationProfile& profile) const;
};

}  // namespace skein::services
