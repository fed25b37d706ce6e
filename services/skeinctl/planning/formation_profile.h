// What formations gain on a live cluster (skeinctl profile): binds the decode groups of a model at
// each size, in TP, in SP and in SP x TP, runs streams, and leaves the cluster as it was.
//
// Every instance of the model takes part, because the orchestrator spreads the streams over all:
// the groups are bound together. While it measures, the groups are pinned; a pin of an operator is
// not touched, so a pinned group is an error.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/skeinctl/cluster/cluster_client.h"
#include "services/skeinctl/planning/formation_gain.h"

namespace skein::services {

struct FormationProfileOptions {
  std::string model;
  int64_t tokens_max = 0;  // of a request, prompt and output
  int64_t rounds = 3;      // of all measurements
  int64_t streams = 32;    // up to so many for each instance or bound group
  int64_t steps = 64;      // of each measurement
};

struct FormationMeasurement {
  std::vector<DecodePoint> points;
  std::map<int32_t, FormationFinding> findings;  // of each size that the groups could be bound at
  std::string notes;  // for people, by line: what was not measured, and why
};

// NOT_FOUND: at the first look no group of the model has two instances. ABORTED: groups or
// instances have gone meanwhile. FAILED_PRECONDITION: an operator has pinned a group, or the
// cluster is not idle. CANCELLED: a stop signal came (CatchStopSignals is called here). Whatever
// comes: the groups are released and unpinned before it returns; if that fails, the error says how
// to do it by hand.
absl::StatusOr<FormationMeasurement> MeasureFormations(ClusterClient* client,
                                                       const FormationProfileOptions& options);

}  // namespace skein::services
