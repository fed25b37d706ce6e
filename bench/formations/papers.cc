// Prints Flying Serving's and Shift Parallelism's figures beside those of our simulation, and the
// residuals of the step profiles. --fit also fits the profiles anew; --seeds prints, and nothing
// else, how the policy of formations did in each of 120 seeds.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "bench/formations/flying_tables.h"
#include "bench/formations/paper_points.h"
#include "bench/formations/shift_tables.h"
#include "bench/formations/tables.h"

namespace skein::bench {
namespace {

using scheduler::StepProfile;

void PrintPoints(const char* title, const StepProfile& profile,
                 const std::vector<PaperPoint>& points) {
  std::printf("\n### %s\n\n| point | source | paper | ours | off |\n|---|---|---|---|---|\n",
              title);
  for (const PaperPoint& point : points) {
    const double ours = point.ours(profile);
    std::printf("| %s | %s | %.4g | %.4g | %+.1f %% |\n", point.what.c_str(), point.source.c_str(),
                point.paper, ours, 100 * (ours / point.paper - 1));
  }
}

void PrintNumbers(const StepProfile& profile) {
  std::printf("\n%s:", profile.name.c_str());
  for (const FreeNumber& number : AllNumbers()) {
    std::printf(" %s %.4g", number.name, profile.fitted.*number.field);
  }
  std::printf("\n");
}

// From 48 starts, the best.
StepProfile FitShift(StepProfile profile) {
  StepProfile best = profile;
  double least = 1e9;
  for (int i = 0; i < 48; ++i) {
    profile.fitted = {.compute_share = i % 2 == 0 ? 0.5 : 0.7,
                      .attention_share = 0.5,
                      .hbm_share = 0.85,
                      .link_share = 0.6 + 0.4 * (i / 2 % 3),
                      .collective_s = i / 6 % 2 == 0 ? 5e-6 : 20e-6,
                      .step_s = i / 12 % 2 == 0 ? 1e-3 : 4e-3,
                      .sequence_s = i / 24 == 0 ? 2e-6 : 20e-6};
    const StepProfile fitted = Fit(ShiftPoints(), AllNumbers(), profile);
    const double loss = Loss(ShiftPoints(), fitted);
    if (loss < least) best = fitted;
    least = std::min(least, loss);
  }
  return best;
}

void PrintFit() {
  const StepProfile shift = FitShift(Profile("llama3-70b-h200-fp8"));
  PrintNumbers(shift);
  StepProfile flying = Profile("llama3-70b-h200-bf16");
  flying.fitted = shift.fitted;
  PrintNumbers(Fit(FlyingPoints(), SoftwareNumbers(), flying));
}

void PrintAll() {
  PrintPoints("llama3-70b-h200-fp8 at Shift Parallelism's points", Profile("llama3-70b-h200-fp8"),
              ShiftPoints());
  PrintPoints("llama3-70b-h200-bf16 at Flying Serving's points", Profile("llama3-70b-h200-bf16"),
              FlyingPoints());
  PrintFlyingTables();
  PrintPolicyTables();
  PrintShiftTables();
}

}  // namespace
}  // namespace skein::bench

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--fit") == 0) skein::bench::PrintFit();
  if (argc > 1 && std::strcmp(argv[1], "--seeds") == 0) {
    skein::bench::PrintSeeds(1, 120);
    return 0;
  }
  skein::bench::PrintAll();
}
