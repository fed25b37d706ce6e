#include "services/router/router_metrics.h"

namespace skein::services {

RouterMetrics::Model& RouterMetrics::Of(const std::string& model) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (const auto it = models_.find(model); it != models_.end()) return it->second;
  const Metrics::Labels labels = {{"model_name", model}};
  return models_
      .try_emplace(
          model, Model{metrics_->Histogram("vllm:time_to_first_token_seconds",
                                           "From a request's arrival to its first token.",
                                           TimeToFirstTokenBuckets(), labels),
                       metrics_->Histogram("vllm:inter_token_latency_seconds",
                                           "Between two tokens of one choice.", InterTokenBuckets(),
                                           labels),
                       metrics_->Histogram("vllm:e2e_request_latency_seconds",
                                           "From a request's arrival to its end.",
                                           RequestLatencyBuckets(), labels),
                       metrics_->Counter("vllm:prompt_tokens_total",
                                         "Prompt tokens of admitted requests.", labels),
                       metrics_->Counter("vllm:generation_tokens_total", "Tokens drawn.", labels)})
      .first->second;
}

void RouterMetrics::CountEnd(const std::string& model, const std::string& reason) {
  metrics_
      ->Counter("vllm:request_success_total", "Choices that ended, by reason.",
                {{"model_name", model}, {"finished_reason", reason}})
      .Increment();
}

void RouterMetrics::CountAnswer(const std::string& path, int status) {
  metrics_
      ->Counter("skein_router_answers_total", "API requests answered, by path and HTTP status.",
                {{"path", path}, {"status", std::to_string(status)}})
      .Increment();
}

void RouterMetrics::CountUnknownParameters(const std::string& path, int64_t count) {
  metrics_
      ->Counter("skein_router_unknown_parameters_total",
                "Parameters of requests that the API does not have, by path.", {{"path", path}})
      .Increment(static_cast<double>(count));
}

void RouterMetrics::Refresh(const scheduler::RouterSnapshot& snapshot, size_t connections) {
  const auto gauge = [this](const char* name, const char* help, double value) {
    metrics_->Gauge(name, help).Set(value);
  };
  gauge("vllm:num_requests_running", "Choices whose tokens are streaming.",
        static_cast<double>(snapshot.streaming));
  gauge("vllm:num_requests_waiting", "Choices queued here or on their way to a decode instance.",
        static_cast<double>(snapshot.queued + snapshot.submitted));
  gauge("skein_router_queued", "Choices queued in the router.",
        static_cast<double>(snapshot.queued));
  gauge("skein_router_oldest_wait_seconds", "How long the oldest queued choice waits.",
        static_cast<double>(snapshot.oldest_wait_us) * 1e-6);
  gauge("skein_router_connections", "Open client connections.", static_cast<double>(connections));
  const auto total = [this](const char* result, uint64_t value) {
    Metrics::RaiseTo(&metrics_->Counter("skein_router_requests_total",
                                        "Choices by what became of them.", {{"result", result}}),
                     static_cast<double>(value));
  };
  total("accepted", snapshot.accepted);
  total("rejected", snapshot.rejected);
  total("finished", snapshot.finished);
  total("cancelled", snapshot.cancelled);
  total("failed", snapshot.failed);
  total("index_error", snapshot.index_errors);
}

}  // namespace skein::services
