// What the router measures, under vLLM's names where vLLM has them. Any thread.
//
// The router owns what is counted once a request: tokens, latencies, lengths. The workers own what
// is counted where it runs: num_requests_running, kv_cache_usage_perc, iteration_tokens_total.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "scheduler/router/router_core.h"
#include "services/http/byte_budget.h"
#include "services/metrics/metrics.h"
#include "services/router/access/access.h"
#include "services/router/access/audit_log.h"
#include "services/router/gen_ai_metrics.h"
#include "services/router/request_times.h"

namespace skein::services {

// A choice that ended with "stop" or "length".
struct FinishedChoice {
  std::string_view reason;
  RequestTimes times;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  int64_t max_tokens = 0;  // that it might have had
};

class RouterMetrics {
 public:
  explicit RouterMetrics(Metrics* metrics) : metrics_(metrics), gen_ai_(metrics) { AddAnswers(); }

  GenAiMetrics& gen_ai() { return gen_ai_; }

  // Shows every series of a model that is served, so that a rate sees the first increment. A model
  // that was not added has the buckets of 2^17 positions.
  void AddModel(const std::string& model, int64_t max_positions);

  // The series of one model. References stay valid as long as the metrics.
  struct Model {
    SeriesExemplars& ttft_exemplars;
    SeriesExemplars& inter_token_exemplars;
    SeriesExemplars& e2e_exemplars;
    prometheus::Histogram& ttft_s;
    prometheus::Histogram& inter_token_s;
    prometheus::Histogram& e2e_s;
    prometheus::Histogram& queue_s;
    prometheus::Histogram& plan_s;
    prometheus::Histogram& prefill_s;
    prometheus::Histogram& handoff_s;
    prometheus::Histogram& decode_s;
    prometheus::Histogram& inference_s;
    prometheus::Histogram& time_per_output_token_s;
    prometheus::Histogram& prompt_length;
    prometheus::Histogram& generation_length;
    prometheus::Histogram& max_generation_length;
    prometheus::Histogram& params_n;
    prometheus::Histogram& params_max_tokens;
    prometheus::Counter& prompt_tokens;
    prometheus::Counter& generation_tokens;
    prometheus::Gauge& running;
    prometheus::Gauge& waiting;
    prometheus::Gauge& waiting_capacity;
    prometheus::Gauge& queued;
    prometheus::Gauge& submitted;
    prometheus::Gauge& streaming;
  };
  Model& Of(const std::string& model);

  void CountFinished(const std::string& model, const FinishedChoice& choice);
  // All choices of a prompt have ended: their number, and the tokens of the longest.
  void CountPrompt(const std::string& model, int64_t choices, int64_t output_tokens_max);
  // So many choices ended otherwise: "abort" (the client left) or "error" (a fault of ours).
  void CountEnds(const std::string& model, const std::string& reason, size_t choices);
  // One HTTP request to the API was answered.
  void CountAnswer(const std::string& path, int status);

  // A request to `path` had that many parameters that the API does not have.
  void CountUnknownParameters(const std::string& path, int64_t count);

  // Choices recorded as a trace, and those dropped because the file was too slow.
  void RefreshTrace(uint64_t written, uint64_t dropped);
  void Refresh(const scheduler::RouterSnapshot& snapshot, int64_t now_us, size_t connections);
  void RefreshAudit(const AuditLog::Counts& counts);
  void RefreshKeyRefusals(const KeyRefusals& refusals);
  void RefreshHeldBytes(const http::ByteBudget& bodies);

 private:
  void AddAnswers();
  prometheus::Counter& AnswersOf(const std::string& path, int status);
  Model Make(const std::string& model, int64_t max_positions);

  Metrics* const metrics_;
  GenAiMetrics gen_ai_;
  std::mutex mutex_;
  std::map<std::string, Model> models_;  // guarded by mutex_
};

}  // namespace skein::services
