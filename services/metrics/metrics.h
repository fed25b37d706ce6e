// Metrics of one process in the Prometheus text format, for GET /metrics. Thread-safe.
//
// Names are vLLM's where vLLM has the same metric, so that stock dashboards work, and skein_*
// otherwise. docs/metrics.md has the full list.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/metric_family.h"
#include "services/metrics/exemplars.h"

namespace prometheus {
class Registry;
}

namespace skein::services {

class Metrics {
 public:
  using Labels = std::map<std::string, std::string>;

  Metrics();
  ~Metrics();

  // The series with that name and labels, made on first use; it lives as long as this object. Each
  // name has one type.
  prometheus::Counter& Counter(const std::string& name, const std::string& help,
                               const Labels& labels = {});
  prometheus::Gauge& Gauge(const std::string& name, const std::string& help,
                           const Labels& labels = {});
  // The first use of a name sets its buckets.
  prometheus::Histogram& Histogram(const std::string& name, const std::string& help,
                                   const std::vector<double>& buckets, const Labels& labels = {});

  // Raises the counter with that name and labels to `total`, which a core counts. Never lowers it.
  template <typename Number>
  void Total(const std::string& name, const std::string& help, const Labels& labels, Number total) {
    RaiseTo(&Counter(name, help, labels), static_cast<double>(total));
  }

  // Of histograms of this object; shown only where OpenMetrics is.
  Exemplars& exemplars() { return exemplars_; }

  // The text of all series. Of kOpenMetrics with the exemplars.
  enum class Format { kPrometheus, kOpenMetrics };
  std::string Render(Format format = Format::kPrometheus) const;
  // The same, with the families of `other` replacing those of the same name here.
  std::string RenderWith(const Metrics& other, Format format = Format::kPrometheus) const;

  // The same for a counter that the caller keeps.
  static void RaiseTo(prometheus::Counter* counter, double total);

 private:
  std::string Text(const std::vector<prometheus::MetricFamily>& families, Format format) const;

  std::shared_ptr<prometheus::Registry> registry_;
  Exemplars exemplars_;
};

// vLLM's vllm:lora_requests_info for a process without LoRA adapters; endpoint pickers require it.
void SetNoAdapters(Metrics* metrics);

// The labels of vLLM's per-engine metrics. A process has one engine, "0" as in vLLM.
Metrics::Labels EngineLabels(const std::string& model);

// vLLM's buckets (vllm/v1/metrics/buckets.py). In seconds:
const std::vector<double>& TimeToFirstTokenBuckets();
const std::vector<double>& InterTokenBuckets();
const std::vector<double>& RequestLatencyBuckets();
// Counts:
const std::vector<double>& StepTokenBuckets();
const std::vector<double>& ChoiceCountBuckets();
std::vector<double> TokenCountBuckets(
    int64_t max_positions);  // 1, 2, 5, 10 ... up to max_positions

}  // namespace skein::services
