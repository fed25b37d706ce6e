// 64 cells with 1,024 requests each.
#include "scheduler/simulator/cell_simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace skein::scheduler {
namespace {

CellSimulationOptions Options(double run_s = 4.5) {
  CellSimulationOptions options;
  options.service_s = 1;
  options.run_s = run_s;
  return options;
}

TEST(CellSimulation, NobodyIsRefusedAndNoCellIsMuchFullerThanTheMean) {
  const CellSimulationResult result = SimulateCells(Options());
  EXPECT_GT(result.requests, 190'000);
  EXPECT_EQ(result.refused, 0);
  EXPECT_EQ(result.lost, 0);
  EXPECT_NEAR(result.mean, 0.7, 0.05);
  EXPECT_LT(result.fullest, 1.0);
  EXPECT_GT(result.stayed, result.keyed * 0.65) << "of " << result.keyed;
}

TEST(CellSimulation, ALostCellCostsItsShareAndNothingAfter) {
  CellSimulationOptions options = Options();
  options.lost_s = 3;
  const CellSimulationResult result = SimulateCells(options);
  EXPECT_GT(result.lost, 0);
  EXPECT_LE(result.lost, options.requests_per_cell);
  EXPECT_EQ(result.refused, 0);
  EXPECT_EQ(result.placed_while_lost[0], 0);
  // Each router notices the loss once.
  EXPECT_LE(result.found_lost, static_cast<int64_t>(options.routers));
}

TEST(CellSimulation, ACellThatComesBackGetsItsShareAgain) {
  CellSimulationOptions options = Options(6);
  options.lost_s = 2;
  options.back_s = 3;
  const CellSimulationResult with = SimulateCells(options);
  options.back_s = -1;
  const CellSimulationResult without = SimulateCells(options);
  EXPECT_EQ(with.refused, 0);
  const double mean = static_cast<double>(with.requests) / static_cast<double>(options.cells);
  EXPECT_GT(static_cast<double>(with.placed[0] - without.placed[0]), mean * 3 / 6 * 0.7);
}

TEST(CellSimulation, OverloadIsRefusedOnlyWhenAllAreFull) {
  CellSimulationOptions options = Options(6);
  options.utilisation = 1.3;
  const CellSimulationResult result = SimulateCells(options);
  EXPECT_GT(result.mean, 0.88) << "the capacity is used";
  EXPECT_GT(result.refused, 0);
}

TEST(CellSimulation, EqualSeedsGiveEqualRuns) {
  CellSimulationOptions options = Options(1);
  options.cells = 8;
  const CellSimulationResult a = SimulateCells(options), b = SimulateCells(options);
  EXPECT_EQ(a.placed, b.placed);
  EXPECT_EQ(a.stayed, b.stayed);
}

}  // namespace
}  // namespace skein::scheduler
