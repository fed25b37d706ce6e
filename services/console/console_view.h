// What a console page shows of a cluster, as one JSON object (docs/console.md lists its members),
// made from what its orchestrators answer. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "proto/jobs.pb.h"
#include "proto/orchestrator.pb.h"

namespace skein::services {

// What was heard of one cell. The answers are the latest ones there are; `reached` is about the
// latest attempt.
struct CellReport {
  std::string name;
  absl::Status reached = absl::UnavailableError("not asked yet");
  v1::StatusResponse status;
  v1::ListGroupsResponse groups;
  v1::ListRequestsResponse requests;
  std::map<std::string, v1::RequestExplanation> explained;  // by IdOf; with their plans
  bool keeps_jobs = false;
  v1::ListJobsResponse jobs;
};

// "router/serial", as in logs.
std::string IdOf(const v1::RequestExplanation& request);

// `now_ms`: since 1970.
nlohmann::json ViewOf(const std::vector<CellReport>& cells, int64_t now_ms);

// All that is known of a request, with every plan.
nlohmann::json ExplanationView(const v1::RequestExplanation& request, int64_t now_ms);

}  // namespace skein::services
