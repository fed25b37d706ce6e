#include "bench/formations/paper_points.h"

#include <cmath>

#include "gtest/gtest.h"
#include "scheduler/simulator/formations/builtin_step_profiles.h"

namespace skein::bench {
namespace {

using scheduler::FindStepProfile;

// The residuals that bench/formations/README.md states.
TEST(PaperPoints, ProfilesMeetThem) {
  for (const PaperPoint& point : ShiftPoints()) {
    EXPECT_NEAR(point.ours(*FindStepProfile("llama3-70b-h200-fp8")) / point.paper, 1, 0.11)
        << point.what;
  }
  for (const PaperPoint& point : FlyingPoints()) {
    if (point.weight == 0) continue;
    EXPECT_NEAR(point.ours(*FindStepProfile("llama3-70b-h200-bf16")) / point.paper, 1, 0.04)
        << point.what;
  }
}

TEST(PaperPoints, TheFitGivesTheProfilesNumbers) {
  const scheduler::StepProfile& profile = *FindStepProfile("llama3-70b-h200-bf16");
  scheduler::StepProfile start = profile;
  start.fitted.step_s = 1e-3;
  EXPECT_NEAR(Fit(FlyingPoints(), SoftwareNumbers(), start).fitted.step_s, profile.fitted.step_s,
              0.01 * profile.fitted.step_s);
  const scheduler::StepProfile& shift = *FindStepProfile("llama3-70b-h200-fp8");
  const double loss = Loss(ShiftPoints(), shift);
  EXPECT_NEAR(Loss(ShiftPoints(), Fit(ShiftPoints(), AllNumbers(), shift)), loss, 0.02 * loss);
}

}  // namespace
}  // namespace skein::bench
