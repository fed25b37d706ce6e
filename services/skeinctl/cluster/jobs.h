// skeinctl jobs: offline jobs, their progress, and their end by an operator's order.
#pragma once

#include <cstdint>
#include <string>

#include "proto/jobs.pb.h"
#include "services/flags/flags.h"

namespace skein::services {

struct JobsFlags {
  std::string order;  // "list", "show" or "cancel"; "": list
  std::string job;
  std::string orchestrator;
  std::string format = "text";
  int64_t limit = 20;
  void Register(FlagSet* set);
};

// Exit code: exit_codes.h; kNotFound for an unknown job.
int RunJobs(const JobsFlags& flags);

// Pure. `now_s`: seconds since 1970.
std::string JobsTable(const v1::ListJobsResponse& response, int64_t now_s);
std::string JobsJson(const v1::ListJobsResponse& response);
std::string JobText(const v1::JobStatus& job, int64_t now_s);
std::string JobJson(const v1::JobStatus& job);

}  // namespace skein::services
