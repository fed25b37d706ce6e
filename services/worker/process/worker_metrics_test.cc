#include "gtest/gtest.h"
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

}  // namespace
}  // namespace skein::services
