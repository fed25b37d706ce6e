// skeinctl fit: a latency profile from measured samples.
#pragma once

#include <string>

#include "scheduler/plan/fit.h"

namespace skein::services {

// argv[0] is "fit". Reads a file of samples (services/codec/profile_json.h has the format), writes
// the profile to standard output and every sample's residual to standard error. Exit code: 0; 2 for
// wrong flags, samples or a fit that is refused.
int FitCommand(int argc, char** argv);

std::string Today();  // UTC, as 2026-11-21

// Pure: a row a sample, and one an SP size with the mean and the largest error.
std::string ResidualTable(const scheduler::LatencyFit& fit);

}  // namespace skein::services
