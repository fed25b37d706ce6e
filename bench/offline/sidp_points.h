// The ratios that the prose of "SiDP: Memory-Efficient Data Parallelism for Offline LLM Inference"
// states and that need no simulation of a job, and the fit of the devices' numbers to them. Bars of
// its figures are not used.
#pragma once

#include <vector>

#include "bench/formations/paper_points.h"
#include "scheduler/simulator/offline/offline_profile.h"

namespace skein::bench {

// Of a step profile only the device's peaks and fitted numbers count; the models are the paper's.
// The weight of points that a profile is not fitted to is 0.
const std::vector<PaperPoint>& H20Points();
const std::vector<PaperPoint>& H200Points();
const std::vector<PaperPoint>& B200Points();

// The paper's "Fetch" lines (figure 9) for `profile`, a profile of Llama-3.1-70B: all weights of
// the feed-forward networks at the link's peak of both directions added up, which is what its
// ratios imply.
double PaperFetchSeconds(const scheduler::StepProfile& profile);

// The devices' numbers, fitted anew: h20, h200, b200.
std::vector<scheduler::StepProfile> FitDevices();

}  // namespace skein::bench
