#include "services/metrics/metrics.h"

#include <ctime>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "services/base/version.h"
#include "services/metrics/process_metrics.h"

namespace skein::services {
namespace {

TEST(Metrics, RendersEachSeriesOnceHoweverOftenItIsAskedFor) {
  Metrics metrics;
  metrics.Counter("vllm:prompt_tokens_total", "Tokens.", {{"model_name", "m"}}).Increment(2);
  metrics.Counter("vllm:prompt_tokens_total", "Tokens.", {{"model_name", "m"}}).Increment(3);
  metrics.Total("skein_steps_total", "Steps.", {}, uint64_t{7});
  metrics.Total("skein_steps_total", "Steps.", {}, uint64_t{5});
  metrics.Histogram("vllm:time_to_first_token_seconds", "TTFT.", TimeToFirstTokenBuckets())
      .Observe(0.3);
  const std::string text = metrics.Render();
  EXPECT_NE(text.find("vllm:prompt_tokens_total{model_name=\"m\"} 5"), std::string::npos) << text;
  EXPECT_NE(text.find("skein_steps_total 7"), std::string::npos) << text;
  EXPECT_NE(text.find("vllm:time_to_first_token_seconds_bucket{le=\"0.5\"} 1"), std::string::npos);
  // vLLM's dashboards name this bound in this form.
  EXPECT_NE(text.find("vllm:time_to_first_token_seconds_bucket{le=\"1.0\"} 1"), std::string::npos);
  EXPECT_EQ(text.find("le=\"1\""), std::string::npos);
}

TEST(Metrics, ScrapesAtTheSameTimeRaiseACounterOnce) {
  constexpr int kTotal = 500'000;
  Metrics metrics;
  prometheus::Counter& counter = metrics.Counter("skein_steps_total", "Steps.");
  std::vector<std::thread> scrapes;
  for (int i = 0; i < 4; ++i) {
    scrapes.emplace_back([&counter] {
      for (int total = 1; total <= kTotal; ++total) Metrics::RaiseTo(&counter, total);
    });
  }
  for (std::thread& scrape : scrapes) scrape.join();
  EXPECT_EQ(counter.Value(), kTotal);
}

TEST(Metrics, TokenBucketsEndAtTheModelsLength) {
  EXPECT_EQ(TokenCountBuckets(1), (std::vector<double>{1}));
  EXPECT_EQ(TokenCountBuckets(60), (std::vector<double>{1, 2, 5, 10, 20, 50}));
  EXPECT_EQ(TokenCountBuckets(4096).back(), 2000);
}

TEST(Metrics, AProcessTellsOfItself) {
  Metrics metrics;
  ProcessMetrics process("router", &metrics);
  process.Refresh();
  const std::string text = metrics.Render();
  const auto value = [&text](const std::string& series) {
    const size_t at = text.find("\n" + series + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + series.size() + 2));
  };
  EXPECT_GT(value("process_cpu_seconds_total"), 0);
  EXPECT_GT(value("process_resident_memory_bytes"), 1 << 16);
  EXPECT_GT(value("process_virtual_memory_bytes"), value("process_resident_memory_bytes"));
  EXPECT_GE(value("process_open_fds"), 3);
  EXPECT_GE(value("process_max_fds"), value("process_open_fds"));
  const auto now = static_cast<double>(time(nullptr));
  EXPECT_GT(value("process_start_time_seconds"), now - 3600);
  EXPECT_LE(value("process_start_time_seconds"), now + 2);
  EXPECT_EQ(value(std::string("skein_build_info{service=\"router\",version=\"") + kVersion + "\"}"),
            1);
}

}  // namespace
}  // namespace skein::services
