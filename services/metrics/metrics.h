// Metrics of one process in the Prometheus text format, for GET /metrics. Thread-safe.
//
// Names are vLLM's where vLLM has the thing (so that stock dashboards work), skein_* otherwise; the
// full list stands in docs/metrics.md.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"

namespace prometheus {
class Registry;
}

namespace skein::services {

class Metrics {
 public:
  using Labels = std::map<std::string, std::string>;

  Metrics();
  ~Metrics();

  // The series of that name and those labels, made on first use; it lives as long as this object.
  // One name has one type.
  prometheus::Counter& Counter(const std::string& name, const std::string& help,
                               const Labels& labels = {});
  prometheus::Gauge& Gauge(const std::string& name, const std::string& help,
                           const Labels& labels = {});
  // The buckets of the first use of a name count.
  prometheus::Histogram& Histogram(const std::string& name, const std::string& help,
                                   const std::vector<double>& buckets, const Labels& labels = {});

  // Raises the counter of that name and those labels to `total`, which a core counts itself. Never
  // lowers it.
  template <typename Number>
  void Total(const std::string& name, const std::string& help, const Labels& labels, Number total) {
    RaiseTo(&Counter(name, help, labels), static_cast<double>(total));
  }

  // The text of all series.
  std::string Render() const;
  // The same with the families of `other`, in place of those of the same name here.
  std::string RenderWith(const Metrics& other) const;

  // The same for a counter that is kept.
  static void RaiseTo(prometheus::Counter* counter, double total);

 private:
  std::shared_ptr<prometheus::Registry> registry_;
};

// vLLM's vllm:lora_requests_info of a process without LoRA adapters: endpoint pickers want it of
// each.
void SetNoAdapters(Metrics* metrics);

// The labels of what vLLM measures for each engine. A process has one, "0" as vLLM names its first.
Metrics::Labels EngineLabels(const std::string& model);

// vLLM's buckets (vllm/v1/metrics/buckets.py). In seconds:
const std::vector<double>& TimeToFirstTokenBuckets();
const std::vector<double>& InterTokenBuckets();
const std::vector<double>& RequestLatencyBuckets();
// Counts:
const std::vector<double>& StepTokenBuckets();
const std::vector<double>& ChoiceCountBuckets();
std::vector<double> TokenCountBuckets(int64_t max_positions);  // 1, 2, 5, 10 ... up to it

}  // namespace skein::services
