#include "services/base/metrics.h"

#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

namespace skein::services {

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

std::string Metrics::Render() const {
  return prometheus::TextSerializer().Serialize(registry_->Collect());
}

void Metrics::RaiseTo(prometheus::Counter* counter, double total) {
  const double now = counter->Value();
  if (total > now) counter->Increment(total - now);
}

const std::vector<double>& TimeToFirstTokenBuckets() {
  static const std::vector<double> buckets = {0.001, 0.005, 0.01, 0.02,  0.04,  0.06,  0.08, 0.1,
                                              0.25,  0.5,   0.75, 1.0,   2.5,   5.0,   7.5,  10.0,
                                              20.0,  40.0,  80.0, 160.0, 640.0, 2560.0};
  return buckets;
}

const std::vector<double>& InterTokenBuckets() {
  static const std::vector<double> buckets = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1,
                                              0.15,  0.2,    0.3,   0.4,  0.5,   0.75, 1.0,   2.5,
                                              5.0,   7.5,    10.0,  20.0, 40.0,  80.0};
  return buckets;
}

const std::vector<double>& RequestLatencyBuckets() {
  static const std::vector<double> buckets = {0.05, 0.1,  0.3,  0.5,   0.8,   1.0,   1.5,
                                              2.0,  2.5,  5.0,  10.0,  15.0,  20.0,  30.0,
                                              40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0};
  return buckets;
}

}  // namespace skein::services
