// How well routers place requests in cells (scheduler/placement/cells.h), by simulation: the
// figures of docs/scale.md. All cells hold equally many requests, at 70 % of that on average.
#include <cstdio>
#include <ctime>

#include "scheduler/simulator/cell_simulation.h"

namespace skein::scheduler {
namespace {

void Row(size_t cells, bool lose_one) {
  CellSimulationOptions options;
  options.cells = cells;
  options.service_s = 1;
  options.run_s = 4.5;
  if (lose_one) options.lost_s = 3;
  const std::clock_t begin = std::clock();
  const CellSimulationResult result = SimulateCells(options);
  const double cpu_us = 1e6 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  std::printf("| %zu | %s | %lld | %lld | %.2f | %.2f | %.1f %% | %lld | %lld | %.2f |\n", cells,
              lose_one ? "yes" : "no", static_cast<long long>(result.requests),
              static_cast<long long>(result.refused), result.mean, result.fullest,
              100.0 * static_cast<double>(result.stayed) / static_cast<double>(result.keyed),
              static_cast<long long>(result.lost), static_cast<long long>(result.found_lost),
              cpu_us / static_cast<double>(result.requests));
}

}  // namespace
}  // namespace skein::scheduler

int main() {
  std::printf(
      "| cells of 1,024 requests | one is lost | requests | refused | mean fill | fullest cell | "
      "keyed requests that stayed in their cell | ended with the lost cell | placed again | "
      "CPU us a request, simulation included |\n|---|---|---|---|---|---|---|---|---|---|\n");
  for (const size_t cells : {10, 64, 98}) {
    for (const bool lose_one : {false, true}) skein::scheduler::Row(cells, lose_one);
  }
}
