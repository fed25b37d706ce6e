// 64 cells of 1,024 instances behind routers of the shipped RouterCore.
#include "scheduler/simulator/router_cells.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace skein::scheduler {
namespace {

TEST(RouterCells, LoadIsEvenAndNobodyIsRefused) {
  RouterCellsOptions options;
  options.run_s = 1.5;
  const RouterCellsResult result = SimulateRouterCells(options);
  EXPECT_EQ(result.violation, "");
  EXPECT_GT(result.requests, 60'000);
  EXPECT_EQ(result.finished, result.requests);
  EXPECT_EQ(result.moved, 0u);
  EXPECT_GT(result.after.emptiest, 0.75 * result.after.mean);
  EXPECT_LT(result.after.fullest, 1.25 * result.after.mean);
  EXPECT_EQ(result.instance_held_max, options.instance_requests);
}

// Its streams have their only token, so that they are whole; whatever else it had moves, and no
// other request notices.
TEST(RouterCells, ALostCellIsThatCellsShareAndNothingElse) {
  RouterCellsOptions options;
  options.run_s = 2.5;
  options.lost_s = 1.5;
  const RouterCellsResult result = SimulateRouterCells(options);
  EXPECT_EQ(result.violation, "");
  EXPECT_GT(result.lost, 0);
  EXPECT_EQ(result.failed, 0);
  EXPECT_EQ(result.refused, 0);
  EXPECT_EQ(result.finished + result.failed, result.requests);
  EXPECT_GT(result.moved, 0u);
  const double share = static_cast<double>(result.held_lost) / static_cast<double>(result.held);
  EXPECT_NEAR(share, 1.0 / 64, 0.004);
  EXPECT_LT(result.after.fullest, 1.25 * result.after.mean);
  EXPECT_LT(result.placed[0], *std::min_element(result.placed.begin() + 1, result.placed.end()));
}

// With one cell there is none to move to: its requests wait, then fail, and new ones do.
TEST(RouterCells, WithoutAnotherCellALossIsEverything) {
  RouterCellsOptions options;
  options.cells = 1;
  options.run_s = 1;
  options.lost_s = 0.5;
  const RouterCellsResult result = SimulateRouterCells(options);
  EXPECT_EQ(result.violation, "");
  EXPECT_GT(result.failed, result.lost);
  EXPECT_EQ(result.moved, 0u);
  EXPECT_EQ(result.finished + result.failed, result.requests);
}

TEST(RouterCells, EqualSeedsGiveEqualRuns) {
  RouterCellsOptions options;
  options.cells = 4;
  options.run_s = 0.5;
  options.lost_s = 0.25;
  const RouterCellsResult one = SimulateRouterCells(options);
  const RouterCellsResult same = SimulateRouterCells(options);
  EXPECT_EQ(one.placed, same.placed);
  EXPECT_EQ(one.events, same.events);
  options.seed = 2;
  EXPECT_NE(SimulateRouterCells(options).placed, one.placed);
}

}  // namespace
}  // namespace skein::scheduler
