#include "services/metrics/metrics.h"

#include <chrono>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"
#include "services/metrics/open_metrics.h"

namespace skein::services {
namespace {

// Writes bucket bounds like vLLM's client library: le="1.0", where prometheus-cpp writes le="1".
// Queries that name a bound, such as vLLM's dashboards, compare the text.
std::string WithDecimalBounds(const std::string& text) {
  constexpr std::string_view kBound = "le=\"";
  std::string out;
  out.reserve(text.size() + text.size() / 16);
  size_t from = 0;
  for (size_t at; (at = text.find(kBound, from)) != std::string::npos;) {
    const size_t end = text.find('"', at + kBound.size());
    out.append(text, from, end - from);
    const bool whole = text.find_first_not_of("0123456789", at + kBound.size()) == end;
    if (whole) out += ".0";
    from = end;
  }
  return out.append(text, from);
}

}  // namespace

Metrics::Metrics()
    : registry_(
          std::make_shared<prometheus::Registry>(prometheus::Registry::InsertBehavior::Merge)) {}

Metrics::~Metrics() = default;

prometheus::Counter& Metrics::Counter(const std::string& name, const std::string& help,
                                      const Labels& labels) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(*registry_).Add(labels);
}

prometheus::Gauge& Metrics::Gauge(const std::string& name, const std::string& help,
                                  const Labels& labels) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(*registry_).Add(labels);
}

prometheus::Histogram& Metrics::Histogram(const std::string& name, const std::string& help,
                                          const std::vector<double>& buckets,
                                          const Labels& labels) {
  return prometheus::BuildHistogram()
      .Name(name)
      .Help(help)
      .Register(*registry_)
      .Add(labels, buckets);
}

std::string Metrics::Text(const std::vector<prometheus::MetricFamily>& families,
                          Format format) const {
  return format == Format::kOpenMetrics
             ? OpenMetricsText(families, exemplars_)
             : WithDecimalBounds(prometheus::TextSerializer().Serialize(families));
}

std::string Metrics::Render(Format format) const { return Text(registry_->Collect(), format); }

std::string Metrics::RenderWith(const Metrics& other, Format format) const {
  std::vector<prometheus::MetricFamily> families = other.registry_->Collect();
  std::set<std::string> theirs;
  for (const auto& family : families) theirs.insert(family.name);
  for (auto& family : registry_->Collect()) {
    if (theirs.count(family.name) == 0) families.push_back(std::move(family));
  }
  return Text(families, format);
}

// Several scrapes at once may raise the same counter.
void Metrics::RaiseTo(prometheus::Counter* counter, double total) {
  static std::mutex raising;
  std::lock_guard lock(raising);
  const double now = counter->Value();
  if (total > now) counter->Increment(total - now);
}

void SetNoAdapters(Metrics* metrics) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  metrics
      ->Gauge("vllm:lora_requests_info",
              "LoRA adapters in use, by labels; the time of this answer.",
              {{"max_lora", "0"}, {"running_lora_adapters", ""}, {"waiting_lora_adapters", ""}})
      .Set(static_cast<double>(std::chrono::duration_cast<std::chrono::seconds>(now).count()));
}

Metrics::Labels EngineLabels(const std::string& model) {
  return {{"engine", "0"}, {"model_name", model}};
}

const std::vector<double>& TimeToFirstTokenBuckets() {
  static const std::vector<double> buckets = {0.001, 0.005, 0.01, 0.02,  0.04,  0.06,  0.08, 0.1,
                                              0.25,  0.5,   0.75, 1.0,   2.5,   5.0,   7.5,  10.0,
                                              20.0,  40.0,  80.0, 160.0, 640.0, 2560.0};
  return buckets;
}

const std::vector<double>& InterTokenBuckets() {
  static const std::vector<double> buckets = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,
                                              0.3,  0.4,   0.5,  0.75,  1.0, 2.5,  5.0,
                                              7.5,  10.0,  20.0, 40.0,  80.0};
  return buckets;
}

const std::vector<double>& RequestLatencyBuckets() {
  static const std::vector<double> buckets = {0.3,  0.5,  0.8,  1.0,   1.5,   2.0,   2.5,
                                              5.0,  10.0, 15.0, 20.0,  30.0,  40.0,  50.0,
                                              60.0, 120., 240., 480.0, 960.0, 1920., 7680.};
  return buckets;
}

const std::vector<double>& StepTokenBuckets() {
  static const std::vector<double> buckets = {1,   8,    16,   32,   64,   128,  256,
                                              512, 1024, 2048, 4096, 8192, 16384};
  return buckets;
}

const std::vector<double>& ChoiceCountBuckets() {
  static const std::vector<double> buckets = {1, 2, 5, 10, 20};
  return buckets;
}

std::vector<double> TokenCountBuckets(int64_t max_positions) {
  std::vector<double> buckets;
  for (int64_t power = 1; power <= max_positions; power *= 10) {
    for (const int64_t mantissa : {1, 2, 5}) {
      if (mantissa * power <= max_positions) {
        buckets.push_back(static_cast<double>(mantissa * power));
      }
    }
  }
  return buckets;
}

}  // namespace skein::services
