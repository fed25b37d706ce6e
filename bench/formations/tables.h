// What the tables of bench/formations:papers share.
#pragma once

#include <string>
#include <vector>

#include "scheduler/simulator/formations/aggregated_run.h"
#include "scheduler/simulator/formations/phased_load.h"
#include "scheduler/simulator/formations/step_time.h"

namespace skein::bench {

// A built-in step profile. REQUIRES: there is one with this name.
const scheduler::StepProfile& Profile(const char* name);

// One layout or policy (LayoutPolicy::Parse).
scheduler::AggregatedResult Run(const char* policy, const scheduler::StepProfile& profile,
                                const scheduler::AggregatedOptions& options,
                                const std::vector<scheduler::GroupRequest>& requests);

// `count` equal requests that all arrive at once.
std::vector<scheduler::GroupRequest> Batch(int64_t count, int64_t prompt, int64_t output);

// A row of what, the paper's number, ours, and how far ours is off.
void PrintBeside(const char* what, double paper, double ours);

}  // namespace skein::bench
