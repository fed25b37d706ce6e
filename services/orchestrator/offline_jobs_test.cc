#include "services/orchestrator/offline_jobs.h"

#include "gtest/gtest.h"

namespace skein::services {
namespace {

TEST(OfflineJobs, TheFolderIsInTheStateFolderUnlessSeveralHostsServeTheCell) {
  OrchestratorOptions options;
  EXPECT_EQ(JobsFolder(options), "");
  options.state_dir = "/state";
  EXPECT_EQ(JobsFolder(options), "/state/jobs");
  options.store = "etcd";
  EXPECT_EQ(JobsFolder(options), "");
  options.jobs_dir = "/volume";
  EXPECT_EQ(JobsFolder(options), "/volume");
  options.jobs_dir = "none";
  EXPECT_EQ(JobsFolder(options), "");
}

TEST(OfflineJobs, CountsWhatWaitsForRoomAndWhatIsFree) {
  scheduler::OrchestratorSnapshot totals;
  EXPECT_EQ(JobLoadOf(totals).instances, 0);
  totals.parked = 1;
  totals.waiting = 2;
  scheduler::ModelTotals& model = totals.models["m"];
  model.decode_placeable = 3;
  model.decode = {.instances = 3, .queued_requests = 4, .total_blocks = 100, .held_blocks = 25};
  model.prefill = {.instances = 2, .queued_requests = 9};
  const scheduler::jobs::ClusterLoad load = JobLoadOf(totals);
  EXPECT_EQ(load.instances, 3);
  EXPECT_EQ(load.waiting, 1 + 2 + 4 + 5);
  EXPECT_EQ(load.free_kv, 0.75);
}

}  // namespace
}  // namespace skein::services
