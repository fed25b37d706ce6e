#include "services/base/metrics.h"

#include "gtest/gtest.h"

namespace skein::services {
namespace {

TEST(Metrics, RendersEachSeriesOnceHoweverOftenItIsAskedFor) {
  Metrics metrics;
  metrics.Counter("vllm:prompt_tokens_total", "Tokens.", {{"model_name", "m"}}).Increment(2);
  metrics.Counter("vllm:prompt_tokens_total", "Tokens.", {{"model_name", "m"}}).Increment(3);
  Metrics::RaiseTo(&metrics.Counter("skein_steps_total", "Steps."), 7);
  Metrics::RaiseTo(&metrics.Counter("skein_steps_total", "Steps."), 5);
  metrics.Histogram("vllm:time_to_first_token_seconds", "TTFT.", TimeToFirstTokenBuckets())
      .Observe(0.3);
  const std::string text = metrics.Render();
  EXPECT_NE(text.find("vllm:prompt_tokens_total{model_name=\"m\"} 5"), std::string::npos) << text;
  EXPECT_NE(text.find("skein_steps_total 7"), std::string::npos) << text;
  EXPECT_NE(text.find("vllm:time_to_first_token_seconds_bucket{le=\"0.5\"} 1"), std::string::npos);
}

}  // namespace
}  // namespace skein::services
