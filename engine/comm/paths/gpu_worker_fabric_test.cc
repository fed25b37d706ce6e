// What workers on one GPU make: which way their groups take. Ranks are threads here; other
// processes are cuda_peer_fabric_test's.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/conformance/checks.h"
#include "engine/comm/paths/worker_fabric.h"
#include "engine/comm/testing/device_buffers.h"
#include "engine/comm/testing/ranks.h"
#include "engine/cuda/device/cuda_device.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

struct Workers {
  explicit Workers(std::optional<CommPath> path, int count = 3)
      : ranks(
            [this, path] {
              const std::shared_ptr<CudaDevice> device = OpenCudaDevice("cuda:0").value();
              WorkerFabricOptions options;
              options.hosts.tls = "self,shm,tcp";
              options.path = path;
              options.warn = [](const std::string& what) { ADD_FAILURE() << what; };
              auto fabric = MakeGpuFabric("cuda:0", device, options).value();
              fabrics.push_back(fabric.get());
              return MakeBufferedFabric(std::move(fabric), device);
            },
            count) {}

  std::vector<PathFabric*> fabrics;
  TestingRanks ranks;
};

TEST(GpuWorkerFabric, OnOneGpuTheyTakeIpc) {
  Workers workers(std::nullopt);
  for (int round = 0; round < 2; ++round) {
    ExpectOk(TestingRanks::Run(workers.ranks.GroupOfAll(), CheckEverything));
  }
  for (const PathFabric* fabric : workers.fabrics) {
    ASSERT_EQ(fabric->Totals().size(), 1u);
    EXPECT_EQ(fabric->Totals()[0].path, CommPath::kIpc);
    ::testing::Test::RecordProperty("ipc GB/s", std::to_string(fabric->Totals()[0].best_gb_per_s));
  }
}

TEST(GpuWorkerFabric, TheHostsWayWhenItIsWanted) {
  Workers workers(CommPath::kHost);
  ExpectOk(TestingRanks::Run(workers.ranks.GroupOfAll(), CheckEverything));
  ASSERT_EQ(workers.fabrics[0]->Totals().size(), 1u);
  EXPECT_EQ(workers.fabrics[0]->Totals()[0].path, CommPath::kHost);
}

TEST(GpuWorkerFabric, NcclIsNotForSeveralOnOneGpu) {
  Workers workers(CommPath::kNccl, 2);
  const std::vector<int> members = {0, 1};
  const auto made = workers.ranks.fabric(0)->MakeGroup({1, 1}, workers.ranks.Addresses(members), 0);
  EXPECT_EQ(std::string(made.status().message()),
            "the path nccl was wanted, but ranks 0 and 1 are on one GPU");
}

}  // namespace
}  // namespace skein::engine
