// skeinctl fit: a latency profile from measured samples.
#pragma once

#include <string>

#include "scheduler/plan/latency/fit.h"
#include "services/flags/flags.h"

namespace skein::services {

std::string Today();  // UTC, as 2026-11-21

struct FitFlags {
  std::string samples;
  std::string model = "unknown";
  std::string device = "unknown";
  std::string format = "table";

  void Register(FlagSet* set);
};

// Reads a file of samples (format: services/codec/profile_json.h), writes the profile to standard
// output and every sample's residual to standard error. Exit code: 0; 2 if the samples cannot be
// read or fitted.
int RunFit(const FitFlags& flags);

// Pure: one row per sample, and one per SP size with the mean and the largest error. `size` is the
// name of what the samples' sp is.
std::string ResidualTable(const scheduler::LatencyFit& fit, const char* size = "sp");
std::string ResidualJsonLines(const scheduler::LatencyFit& fit);

}  // namespace skein::services
