// The papers' points that a step-time model can be held against without a simulation, and the fit
// of a profile's numbers to them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "scheduler/simulator/formations/step_time.h"

namespace skein::bench {

struct PaperPoint {
  std::string what;
  std::string source;
  double paper = 0;
  double weight = 1;  // of its squared logarithm in the fit; 0: shown only
  std::function<double(const scheduler::StepProfile&)> ours;
};

// Shift Parallelism: Llama-70B in fp8 on 8 H200, DP of 8 instances.
const std::vector<PaperPoint>& ShiftPoints();
// Flying Serving: Llama-3-70B in bf16 on 8 H200, DP of 4 instances of two devices.
const std::vector<PaperPoint>& FlyingPoints();

// Of the points whose weight is not 0: the sum of weight x ln(ours / paper)^2.
double Loss(const std::vector<PaperPoint>& points, const scheduler::StepProfile& profile);

// A number that the fit may change, and its limits.
struct FreeNumber {
  const char* name;
  double scheduler::StepProfile::Fitted::*field;
  double min, max;
};
// All of StepProfile::Fitted, and those of the software alone.
const std::vector<FreeNumber>& AllNumbers();
const std::vector<FreeNumber>& SoftwareNumbers();

// Moves one number at a time by a factor, as long as the loss falls; the factor shrinks when none
// does. Deterministic; a local minimum.
scheduler::StepProfile Fit(const std::vector<PaperPoint>& points,
                           const std::vector<FreeNumber>& free, scheduler::StepProfile profile);

}  // namespace skein::bench
