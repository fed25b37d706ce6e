// A measurement of decode steps: what each instance, or bound group, counted between two readings
// of its metrics while the streams of the measurement ran. Pure; decode_probe.h reads.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/orchestrator.pb.h"
#include "services/skeinctl/cluster/formation_verify.h"
#include "services/skeinctl/planning/formation_gain.h"

namespace skein::services {

// Who runs streams: an instance that works alone, or the lead of a bound group.
struct DecodeTarget {
  uint64_t instance = 0;
  int32_t instances = 1;  // of the bound group
  int32_t base_tp = 1;    // that its base was ordered with
  bool operator==(const DecodeTarget&) const = default;
};
// Of the model, as its instances stand now, with pure SP. FAILED_PRECONDITION: a switch is under
// way.
absl::StatusOr<std::vector<DecodeTarget>> DecodeTargets(const v1::ListGroupsResponse& groups,
                                                        const std::string& model);

struct DecodeWindow {
  DecodeTarget target;
  MemberNumbers first, last;
  double seconds = 0;  // between the two readings
};

// The targets of `size` instances that ran at least `least_steps` steps. Others give no sample: an
// instance that is left over where groups of three are bound at two works alone, but at its side
// others are bound. Each of the `streams` ran all the time, so the tokens of a step of all targets
// are as many in sum. FAILED_PRECONDITION: they are not, because other requests ran, or streams
// waited; or a bound group ran steps in TP and in its base, or in another base.
absl::StatusOr<std::vector<DecodeSample>> SamplesOf(const std::vector<DecodeWindow>& windows,
                                                    int32_t size, int64_t streams,
                                                    int64_t least_steps);

// How many streams to run at a time where there are so many targets and instances: one, one an
// instance, and 1, 2, 4 … up to `most` a target. Ascending, unique.
std::vector<int64_t> StreamCounts(int64_t targets, int64_t instances, int64_t most);

}  // namespace skein::services
