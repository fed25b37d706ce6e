#include "services/metrics/open_metrics.h"

#include <regex>
#include <sstream>

#include "gtest/gtest.h"
#include "services/metrics/metrics.h"
#include "services/metrics/metrics_page.h"

namespace skein::services {
namespace {

constexpr char kTraceA[] = "0af7651916cd43dd8448eb211c80319c";
constexpr char kTraceB[] = "1af7651916cd43dd8448eb211c80319c";

bool Has(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line) != std::string::npos;
}

TEST(OpenMetrics, WritesEachTypeAndEndsWithEof) {
  Metrics metrics;
  metrics.Counter("skein_steps_total", "Steps \"done\".", {{"a", "x\"\\\ny"}}).Increment(3);
  metrics.Gauge("skein_load", "Load.").Set(0.5);
  metrics.Counter("skein_odd", "A counter of another name.").Increment();
  metrics.Histogram("skein_s", "Seconds.", {0.25, 1, 10}, {{"m", "n"}}).Observe(0.5);
  const std::string text = metrics.Render(Metrics::Format::kOpenMetrics);
  EXPECT_TRUE(Has(text, "# TYPE skein_steps counter\n")) << text;
  EXPECT_TRUE(Has(text, "# HELP skein_steps Steps \\\"done\\\".\n"));
  EXPECT_TRUE(Has(text, "skein_steps_total{a=\"x\\\"\\\\\\ny\"} 3\n"));
  EXPECT_TRUE(Has(text, "# TYPE skein_load gauge\n"));
  EXPECT_TRUE(Has(text, "skein_load 0.5\n"));
  EXPECT_TRUE(Has(text, "# TYPE skein_odd unknown\n"));
  EXPECT_TRUE(Has(text, "# TYPE skein_s histogram\n"));
  EXPECT_TRUE(Has(text, "skein_s_bucket{m=\"n\",le=\"0.25\"} 0\n"));
  EXPECT_TRUE(Has(text, "skein_s_bucket{m=\"n\",le=\"1.0\"} 1\n"));
  EXPECT_TRUE(Has(text, "skein_s_bucket{m=\"n\",le=\"10.0\"} 1\n"));
  EXPECT_TRUE(Has(text, "skein_s_bucket{m=\"n\",le=\"+Inf\"} 1\n"));
  EXPECT_TRUE(Has(text, "skein_s_count{m=\"n\"} 1\n"));
  EXPECT_TRUE(Has(text, "skein_s_sum{m=\"n\"} 0.5\n"));
  EXPECT_EQ(text.substr(text.size() - 6), "# EOF\n");
}

// As the specification has them ("Canonical Numbers"), and Prometheus's client for Python, vLLM's.
TEST(OpenMetrics, BoundsAreWrittenAsOthersWriteThem) {
  Metrics metrics;
  metrics.Histogram("skein_s", "Seconds.",
                    {1e-10, 1e-5, 0.0001, 0.00025, 0.001, 0.5, 20, 1e5, 5e5, 1e6, 1e10});
  const std::string text = metrics.Render(Metrics::Format::kOpenMetrics);
  for (const char* bound : {"1e-10", "1e-05", "0.0001", "0.00025", "0.001", "0.5", "20.0",
                            "100000.0", "500000.0", "1e+06", "1e+10", "+Inf"}) {
    EXPECT_TRUE(Has(text, "skein_s_bucket{le=\"" + std::string(bound) + "\"} 0\n")) << text;
  }
}

TEST(OpenMetrics, ABucketHasTheLatestExemplarOfItsSeries) {
  Metrics metrics;
  const std::vector<double> bounds = {0.25, 1};
  for (const char* model : {"a", "b"}) {
    metrics.Histogram("skein_s", "Seconds.", bounds, {{"m", model}}).Observe(0.5);
  }
  SeriesExemplars& series = metrics.exemplars().Of("skein_s", {{"m", "a"}}, bounds);
  series.Note(0.5, kTraceB);
  series.Note(0.75, kTraceA);
  series.Note(0.25, kTraceA);  // a bound belongs to its bucket
  series.Note(7, kTraceB);
  const std::string text = metrics.Render(Metrics::Format::kOpenMetrics);
  const std::string time = " [0-9]{10,}\\.[0-9]{3}\n";
  const auto found = [&](const std::string& line) {
    return std::regex_search(text, std::regex(line + time));
  };
  EXPECT_TRUE(
      found("m=\"a\",le=\"0.25\"\\} 0 # \\{trace_id=\"" + std::string(kTraceA) + "\"\\} 0\\.25"))
      << text;
  EXPECT_TRUE(
      found("m=\"a\",le=\"1.0\"\\} 1 # \\{trace_id=\"" + std::string(kTraceA) + "\"\\} 0\\.75"));
  EXPECT_TRUE(
      found("m=\"a\",le=\"\\+Inf\"\\} 1 # \\{trace_id=\"" + std::string(kTraceB) + "\"\\} 7"));
  EXPECT_TRUE(Has(text, "skein_s_bucket{m=\"b\",le=\"1.0\"} 1\n"));
  // Prometheus's own format has none.
  EXPECT_EQ(metrics.Render().find("trace_id"), std::string::npos);
}

// As the specification's grammar has it (ABNF, "metricset"), for what this process writes.
TEST(OpenMetrics, EveryLineIsOfTheGrammar) {
  Metrics metrics;
  metrics.Counter("vllm:prompt_tokens_total", "Tokens.", {{"model_name", "m/ä"}}).Increment(1e12);
  metrics.Gauge("skein_small", "Small.").Set(1e-9);
  metrics.Histogram("skein_s", "Seconds.", {1e-4, 1e6}, {}).Observe(3);
  metrics.exemplars().Of("skein_s", {}, {1e-4, 1e6}).Note(3, kTraceA);
  std::istringstream lines(metrics.Render(Metrics::Format::kOpenMetrics));
  const std::string name = "[a-zA-Z_:][a-zA-Z0-9_:]*", label = "[a-zA-Z_][a-zA-Z0-9_]*=\"[^\"]*\"";
  const std::string labels = "\\{" + label + "(," + label + ")*\\}";
  const std::string number = "([+-]?[0-9]+(\\.[0-9]+)?(e[+-]?[0-9]+)?|[+-]?Inf|NaN)";
  const std::regex sample(name + "(" + labels + ")? " + number + "( # " + labels + " " + number +
                          " [0-9]+\\.[0-9]+)?");
  const std::regex meta("# (TYPE " + name + " (counter|gauge|histogram|unknown)|HELP " + name +
                        " .*|EOF)");
  std::string last;
  for (std::string line; std::getline(lines, line); last = line) {
    EXPECT_NE(last, "# EOF");
    EXPECT_TRUE(std::regex_match(line, line[0] == '#' ? meta : sample)) << line;
  }
  EXPECT_EQ(last, "# EOF");
}

TEST(OpenMetrics, IsServedToWhoPrefersIt) {
  EXPECT_FALSE(AcceptsOpenMetrics(""));
  EXPECT_FALSE(AcceptsOpenMetrics("*/*"));
  EXPECT_FALSE(AcceptsOpenMetrics("text/plain"));
  EXPECT_TRUE(AcceptsOpenMetrics("application/openmetrics-text"));
  // Prometheus 2.42.
  EXPECT_TRUE(
      AcceptsOpenMetrics("application/openmetrics-text;version=1.0.0,"
                         "application/openmetrics-text;version=0.0.1;q=0.75,"
                         "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"));
  EXPECT_FALSE(AcceptsOpenMetrics("application/openmetrics-text;q=0.2, text/plain;q=0.9"));
  EXPECT_FALSE(AcceptsOpenMetrics("application/openmetrics-text;q=0"));
  http::Request request;
  const auto render = [](Metrics::Format format) {
    return std::string(format == Metrics::Format::kOpenMetrics ? "open" : "plain");
  };
  EXPECT_EQ(MetricsPage(request, render).body, "plain");
  request.headers = {{"Accept", "application/openmetrics-text"}};
  EXPECT_EQ(MetricsPage(request, render).body, "open");
  EXPECT_EQ(MetricsPage(request, render).content_type, kOpenMetricsType);
}

}  // namespace
}  // namespace skein::services
