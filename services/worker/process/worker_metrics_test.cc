#include "gtest/gtest.h"
#include "services/worker/engine/data_plane.h"
#include "services/worker/process/worker_common.h"

namespace skein::services {
namespace {

// vLLM counts the blocks that requests hold; a cached one is free for whoever needs it.
TEST(RefreshLoad, KvInUseIsTheShareOfHeldBlocks) {
  Metrics metrics;
  RefreshLoad({.free_blocks = 5, .held_blocks = 3, .cached_blocks = 2, .total_blocks = 10}, {}, "m",
              &metrics);
  const std::string text = metrics.Render();
  EXPECT_NE(text.find("vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.3\n"),
            std::string::npos)
      << text;
}

TEST(RefreshLoad, NoBlocksAreNotInUse) {
  Metrics metrics;
  RefreshLoad({}, {}, "m", &metrics);
  EXPECT_NE(metrics.Render().find("vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0\n"),
            std::string::npos);
}

// Such a worker comes again and again: its requests fail meanwhile.
TEST(RefreshDataConnections, ThoseThatWereClosedAtTheLimitAreCounted) {
  Metrics metrics;
  RefreshDataConnections(&metrics);
  EXPECT_NE(metrics.Render().find("skein_data_connections_refused_total 0\n"), std::string::npos);
  const auto network = DataPlaneOf(WorkerOptions(), /*offset=*/0);
  ASSERT_TRUE(network.ok()) << network.status();
  for (int i = 0; i < 3; ++i) network->tcp_refused(4096);
  RefreshDataConnections(&metrics);
  EXPECT_NE(metrics.Render().find("skein_data_connections_refused_total 3\n"), std::string::npos);
}

}  // namespace
}  // namespace skein::services
