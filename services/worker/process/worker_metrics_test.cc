#include <cstdint>
#include <string>

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

TEST(RefreshSteps, StepsAndTokensAreCountedByModeAndRanks) {
  Metrics metrics;
  RefreshSteps({{"own", 1, 3, 40}, {"ring", 4, 2, 17}}, 5, "m", &metrics);
  const std::string text = metrics.Render();
  for (const std::string line :
       {"skein_engine_steps_total{mode=\"own\",model_name=\"m\",ranks=\"1\"} 3\n",
        "skein_engine_steps_total{mode=\"ring\",model_name=\"m\",ranks=\"4\"} 2\n",
        "skein_engine_step_tokens_total{mode=\"own\",model_name=\"m\",ranks=\"1\"} 40\n",
        "skein_engine_step_tokens_total{mode=\"ring\",model_name=\"m\",ranks=\"4\"} 17\n",
        "skein_engine_probes_total{model_name=\"m\"} 5\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

TEST(RefreshComm, BytesAreCountedByPathAndRanks) {
  Metrics metrics;
  RefreshComm({{.ranks = 2, .path = engine::CommPath::kHost, .bytes = 7, .busy_seconds = 0.5}}, "m",
              &metrics);
  const std::string text = metrics.Render();
  for (const std::string line :
       {"skein_comm_bytes_total{model_name=\"m\",path=\"host\",ranks=\"2\"} 7\n",
        "skein_comm_busy_seconds_total{model_name=\"m\",path=\"host\",ranks=\"2\"} 0.5\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

TEST(DecodeQueueSeconds, TheSeriesIsThereFromTheStart) {
  Metrics metrics;
  const auto has = [&metrics](const std::string& line) {
    return metrics.Render().find(line) != std::string::npos;
  };
  prometheus::Histogram& waits = DecodeQueueSeconds("m", &metrics);
  EXPECT_TRUE(has("skein_request_decode_queue_time_seconds_count{model_name=\"m\"} 0\n"));
  waits.Observe(0.3);
  EXPECT_TRUE(has("skein_request_decode_queue_time_seconds_sum{model_name=\"m\"} 0.3\n"));
}

// Such a worker comes again and again: its requests fail meanwhile.
TEST(RefreshDataConnections, ThoseThatWereClosedAtTheLimitAreCounted) {
  const uint64_t before = DataConnectionsRefused();
  const auto has = [](const Metrics& metrics, uint64_t refused) {
    const std::string line =
        "skein_data_connections_refused_total " + std::to_string(refused) + "\n";
    return metrics.Render().find(line) != std::string::npos;
  };
  Metrics metrics;
  RefreshDataConnections(&metrics);
  EXPECT_TRUE(has(metrics, before));
  const auto network = DataPlaneOf(WorkerOptions(), /*offset=*/0);
  ASSERT_TRUE(network.ok()) << network.status();
  for (int i = 0; i < 3; ++i) network->tcp_refused(4096);
  RefreshDataConnections(&metrics);
  EXPECT_TRUE(has(metrics, before + 3));
}

}  // namespace
}  // namespace skein::services
