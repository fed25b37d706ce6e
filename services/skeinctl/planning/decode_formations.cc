#include "services/skeinctl/planning/decode_formations.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace skein::services {

void DecodeFormationFlags::Register(FlagSet* set) {
  constexpr double kMost = 1e6;
  set->Group("Formations of decode instances");
  set->String(
         &formations, "decode-formations",
         "Formations to compare, separated by commas: independent, bound(2), bound(4), "
         "bound(8); shift: the widest group of each node, whose steps run in SP above the "
         "profile's shift_tokens; hybrid: one half of each node bound, the other independent; "
         "or auto: as an orchestrator with this --profile chooses. Without it decode instances "
         "work alone, and no step is launched ahead.")
      .Value("FORMATION[,FORMATION...]");
  set->Int(&node_size, "decode-node-size", "Decode instances per node; they are a group.", 1,
           1 << 16);
  set->Int(&batch_sequences, "decode-batch-sequences", "Maximum number of sequences in a step.", 1,
           1 << 16);
  set->Double(&policy.bind_sequences, "formation-bind-sequences",
              "As the orchestrator's flag of this name; so are the next three.", 0, kMost);
  set->Double(&policy.release_sequences, "formation-release-sequences",
              "At or above so many sequences an instance a group is released.", 0, kMost);
  set->Double(&dwell_s, "formation-dwell-s", "Least time between two changes by load.", 0, 86400);
  set->Double(&policy.min_gain, "formation-min-gain", "Least gain of a size that is bound.", 1,
              1000);
  set->String(&requests, "decode-requests",
              "CSV file for the decode times of each request; needs --decode-formations.")
      .Value("FILE");
}

absl::StatusOr<std::vector<scheduler::DecodeGroupsOptions>> DecodeFormationFlags::Options(
    const scheduler::DecodeOptions& decode,
    const scheduler::orchestrator::FormationProfile& profile) const {
  std::vector<scheduler::DecodeGroupsOptions> all;
  for (const absl::string_view name : absl::StrSplit(formations, ',', absl::SkipEmpty())) {
    auto formation = scheduler::DecodeFormation::Parse(std::string(name));
    absl::Status status = formation.status();
    scheduler::DecodeGroupsOptions options;
    if (status.ok()) {
      options.formation = *std::move(formation);
      options.node_instances = static_cast<int32_t>(node_size);
      options.batch_sequences = batch_sequences;
      options.profile = profile;
      options.driver.policy = policy;
      options.driver.policy.min_dwell_us =
          static_cast<scheduler::TimeUs>(dwell_s * scheduler::kSecondUs);
      status = CheckDecodeGroups(decode, options);
    }
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--decode-formations: ", status.message()));
    }
    all.push_back(std::move(options));
  }
  if (all.empty() && !requests.empty()) {
    return absl::InvalidArgumentError("--decode-requests: needs --decode-formations");
  }
  return all;
}

}  // namespace skein::services
