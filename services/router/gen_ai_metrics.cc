#include "services/router/gen_ai_metrics.h"

#include <vector>

#include "services/router/spans/gen_ai.h"

namespace skein::services {
namespace {

const std::vector<double>& DurationBuckets() {
  static const std::vector<double> buckets = {0.01, 0.02, 0.04, 0.08,  0.16,  0.32,  0.64,
                                              1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92};
  return buckets;
}

const std::vector<double>& FirstTokenBuckets() {
  static const std::vector<double> buckets = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                              0.25,  0.5,   0.75, 1.0,  2.5,  5.0,  7.5,  10.0};
  return buckets;
}

const std::vector<double>& TokenBuckets() {
  static const std::vector<double> buckets = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,
                                              0.3,  0.4,   0.5,  0.75,  1.0, 2.5};
  return buckets;
}

Metrics::Labels LabelsOf(std::string_view operation, const std::string& model) {
  return {{"gen_ai_operation_name", std::string(operation)},
          {"gen_ai_provider_name", kProviderName},
          {"gen_ai_request_model", model}};
}

// `error` empty: to Prometheus the label is not there then.
prometheus::Histogram& Duration(Metrics* metrics, Metrics::Labels labels, std::string_view error) {
  labels["error_type"] = error;
  return metrics->Histogram("gen_ai_server_request_duration_seconds",
                            "From a generation request's arrival to the end of its answer.",
                            DurationBuckets(), labels);
}

prometheus::Histogram& FirstToken(Metrics* metrics, const Metrics::Labels& labels) {
  return metrics->Histogram("gen_ai_server_time_to_first_token_seconds",
                            "From a generation request's arrival to the first token of an answer "
                            "that ended well.",
                            FirstTokenBuckets(), labels);
}

prometheus::Histogram& PerToken(Metrics* metrics, const Metrics::Labels& labels) {
  return metrics->Histogram("gen_ai_server_time_per_output_token_seconds",
                            "Mean time between the tokens of a choice that ended well.",
                            TokenBuckets(), labels);
}

}  // namespace

void GenAiMetrics::AddModel(const std::string& model) {
  for (const openai::Kind kind : {openai::Kind::kChat, openai::Kind::kCompletion}) {
    const Metrics::Labels labels = LabelsOf(OperationOf(kind), model);
    Duration(metrics_, labels, "");
    FirstToken(metrics_, labels);
    PerToken(metrics_, labels);
  }
}

void GenAiMetrics::CountRequest(std::string_view operation, const std::string& model,
                                std::string_view error, double seconds) {
  Duration(metrics_, LabelsOf(operation, model), error).Observe(seconds);
}

void GenAiMetrics::CountFirstToken(std::string_view operation, const std::string& model,
                                   double seconds) {
  FirstToken(metrics_, LabelsOf(operation, model)).Observe(seconds);
}

void GenAiMetrics::CountTokens(std::string_view operation, const std::string& model,
                               double seconds_per_token) {
  PerToken(metrics_, LabelsOf(operation, model)).Observe(seconds_per_token);
}

}  // namespace skein::services
