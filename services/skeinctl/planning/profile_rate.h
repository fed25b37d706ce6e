// skeinctl profile-rate: Tetris's improvement-rate profiler (section 5.1).
#pragma once

#include <string>
#include <vector>

#include "scheduler/simulator/rate_profiler.h"
#include "services/skeinctl/planning/sim_inputs.h"

namespace skein::services {

struct ProfileRateFlags {
  SimFlags sim;
  std::string out;
  std::string figure;
  std::string format = "table";
  bool rolling = false;

  void Register(FlagSet* set);
};

// Prints the best improvement rate per load. --out FILE writes the profile with the table, for
// `--profile FILE` of other commands. Exit code: 0; 1 if a file cannot be written; 2 for wrong
// input, with the flag named on stderr.
int RunProfileRate(const ProfileRateFlags& flags);

// Pure: one row per load, with the percentiles at the best rate.
std::string ImprovementRateRows(const scheduler::Profile& profile);

// Like the paper's figure 11: P50 and P99 TTFT over the load at fixed improvement rates, each
// relative to the best rate at that load.
std::string ImprovementRateFigure(const scheduler::Profile& profile);

}  // namespace skein::services
