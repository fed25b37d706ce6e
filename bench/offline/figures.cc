// Prints SiDP's figures as the simulated model of offline jobs has them, beside the numbers that
// the paper's prose states. With numbers of figures: only these; --fit: the devices' fitted
// numbers, anew, with residuals.
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "bench/offline/sidp_points.h"
#include "bench/offline/tables.h"

namespace skein::bench {
namespace {

struct Figure {
  const char* number;
  std::function<void()> print;
};

const std::vector<Figure>& Figures() {
  static const auto* const kFigures = new std::vector<Figure>{
      {"2", PrintUtilisation},
      {"5", PrintKvCapacity},
      {"6", [] { PrintThroughput("h20"); }},
      {"7", [] { PrintThroughput("h200"); }},
      {"8", [] { PrintThroughput("b200"); }},
      {"9", PrintOverlap},
      {"10", PrintPeakShifting},
      {"11", PrintModes},
      {"12", PrintLessMemory},
      {"13", PrintAblation},
      {"14", PrintCasVersions},
      {"15", PrintShares},
  };
  return *kFigures;
}

void PrintFit() {
  const std::vector<PaperPoint>* const points[] = {&H20Points(), &H200Points(), &B200Points()};
  size_t at = 0;
  for (const scheduler::StepProfile& profile : FitDevices()) {
    std::printf("\n%s: compute_share %.4g step_s %.4g sequence_s %.4g\n\n", profile.name.c_str(),
                profile.fitted.compute_share, profile.fitted.step_s, profile.fitted.sequence_s);
    std::printf("| point | source | paper | ours | ours / paper |\n|---|---|---|---|---|\n");
    for (const PaperPoint& point : *points[at]) {
      const double ours = point.ours(profile);
      std::printf("| %s | %s | %.4g | %.4g | %.2f |\n", point.what.c_str(), point.source.c_str(),
                  point.paper, ours, ours / point.paper);
    }
    ++at;
  }
}

// False: no figure has this number.
bool Print(const char* number) {
  for (const Figure& figure : Figures()) {
    if (std::strcmp(number, figure.number) != 0) continue;
    figure.print();
    return true;
  }
  std::fprintf(stderr, "'%s' is neither --fit nor one of the figures 2 and 5 to 15\n", number);
  return false;
}

}  // namespace
}  // namespace skein::bench

int main(int argc, char** argv) {
  if (argc == 1) {
    for (const auto& figure : skein::bench::Figures()) figure.print();
  }
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--fit") == 0) {
      skein::bench::PrintFit();
    } else if (!skein::bench::Print(argv[i])) {
      return 2;
    }
  }
}
