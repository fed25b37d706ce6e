#include "bench/formations/tables.h"

#include <cstdio>

#include "scheduler/simulator/formations/builtin_step_profiles.h"

namespace skein::bench {

using scheduler::AggregatedOptions;
using scheduler::AggregatedResult;
using scheduler::GroupRequest;
using scheduler::StepProfile;

const StepProfile& Profile(const char* name) { return *scheduler::FindStepProfile(name); }

AggregatedResult Run(const char* policy, const StepProfile& profile,
                     const AggregatedOptions& options, const std::vector<GroupRequest>& requests) {
  return RunAggregated(*scheduler::LayoutPolicy::Parse(policy), profile, options, requests);
}

std::vector<GroupRequest> Batch(int64_t count, int64_t prompt, int64_t output) {
  return std::vector<GroupRequest>(static_cast<size_t>(count),
                                   {.prompt_tokens = prompt, .output_tokens = output});
}

void PrintBeside(const char* what, double paper, double ours) {
  std::printf("| %s | %.4g | %.4g | %+.1f %% |\n", what, paper, ours, 100 * (ours / paper - 1));
}

}  // namespace skein::bench
