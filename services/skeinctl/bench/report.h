// Prints a load's statistics: a table for people, AIPerf's JSON for programs. Pure.
#pragma once

#include <string>
#include <vector>

#include "services/skeinctl/bench/record.h"
#include "services/skeinctl/bench/statistics.h"

namespace skein::services::bench {

// A description of the run, for the report.
struct RunDescription {
  std::string url;
  std::string model;
  std::string endpoint;  // "completions" or "chat"
  bool streaming = true;
  std::string data;         // for people: "random 512 -> 128 tokens"
  std::string load;         // for people: "Poisson, 4 requests/s" or "closed loop, 8 at a time"
  double request_rate = 0;  // 0: none
  std::string arrivals;     // "poisson", "constant", "trace"; empty with a closed loop
  int64_t concurrency = 0;  // 0: no limit
  int64_t requests = 0;
  int64_t warmup_requests = 0;
  uint64_t seed = 0;
  std::vector<Objective> objectives;
  bool cancelled = false;
  int64_t started_unix_us = 0;  // of the measured phase
  std::string version;          // of skeinctl
};

std::string Table(const RunDescription& run, const Statistics& statistics);

// The structure of AIPerf's profile_export_aiperf.json, schema 1.1: one top-level entry per metric
// with unit, avg and, for distributions, min, max, std, count, sum and percentiles; error_summary;
// start_time, end_time, was_cancelled; input_config where it applies. `send_delay` is our addition.
std::string AiperfJson(const RunDescription& run, const Statistics& statistics);

// One line per request, in the structure of AIPerf's profile_export.jsonl.
std::string RecordLines(const RunDescription& run, const std::vector<RequestRecord>& records);

}  // namespace skein::services::bench
