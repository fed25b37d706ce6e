// skeinctl simulate --aggregated: a group that serves prompts and decode in one batch, under static
// layouts and under the formation policy.
#pragma once

#include <string>
#include <vector>

#include "scheduler/simulator/formations/aggregated_run.h"
#include "services/flags/flags.h"

namespace skein::services {

struct AggregatedFlags {
  bool aggregated = false;
  std::string policy = "dp,tp,shift,hybrid,flying-sequential,flying-soft,flying-hard,auto";
  std::string step_profile = "llama3-70b-h200-bf16";
  scheduler::PhasedLoad load = {
      .quiet_s = 120, .prompt_min = 500, .prompt_max = 5000, .output_min = 20, .output_max = 180};
  scheduler::AggregatedOptions options;
  double min_dwell_s = 10;
  double shift_ms = 0;
  std::string release = "auto";

  AggregatedFlags();
  void Register(FlagSet* set);
};

struct AggregatedRow {
  std::string policy;
  scheduler::AggregatedResult result;
};

// Exit code: 0; 2 for wrong input, named on stderr. `profile`: of --profile; its default, a latency
// profile, stands for step_profile. `requests` of 0 are load.requests.
int RunAggregated(const AggregatedFlags& flags, const std::string& profile, int64_t requests,
                  int64_t seed, const std::string& format);

// Pure: for people, with the load and a legend; one JSON object a line for programs.
std::string AggregatedTable(const scheduler::PhasedLoad& load,
                            const std::vector<AggregatedRow>& rows);
std::string AggregatedJsonLines(const std::vector<AggregatedRow>& rows);

}  // namespace skein::services
