#include "services/router/router_metrics.h"

#include <vector>

namespace skein::services {
namespace {

constexpr char kTtft[] = "vllm:time_to_first_token_seconds";
constexpr char kInterToken[] = "vllm:inter_token_latency_seconds";
constexpr char kE2e[] = "vllm:e2e_request_latency_seconds";

double Seconds(int64_t us) { return static_cast<double>(us) * 1e-6; }

// Makes the series of one model.
class Maker {
 public:
  Maker(Metrics* metrics, const std::string& model)
      : metrics_(metrics), engine_(EngineLabels(model)), model_({{"model_name", model}}) {}

  prometheus::Histogram& Latency(const char* name, const char* help) const {
    return metrics_->Histogram(name, help, RequestLatencyBuckets(), engine_);
  }
  prometheus::Histogram& Histogram(const char* name, const char* help,
                                   const std::vector<double>& buckets) const {
    return metrics_->Histogram(name, help, buckets, engine_);
  }
  SeriesExemplars& Exemplars(const char* name, const std::vector<double>& buckets) const {
    return metrics_->exemplars().Of(name, engine_, buckets);
  }
  prometheus::Histogram& Ours(const char* name, const char* help) const {
    return metrics_->Histogram(name, help, TimeToFirstTokenBuckets(), model_);
  }
  prometheus::Counter& Counter(const char* name, const char* help) const {
    return metrics_->Counter(name, help, engine_);
  }
  prometheus::Gauge& Gauge(const char* name, const char* help) const {
    return metrics_->Gauge(name, help, engine_);
  }
  prometheus::Gauge& Capacity() const {
    Metrics::Labels labels = engine_;
    labels["reason"] = "capacity";
    return metrics_->Gauge("vllm:num_requests_waiting_by_reason", "Requests that wait, by reason.",
                           labels);
  }
  prometheus::Gauge& OurGauge(const char* name, const char* help) const {
    return metrics_->Gauge(name, help, model_);
  }

 private:
  Metrics* const metrics_;
  const Metrics::Labels engine_;  // of vLLM's names
  const Metrics::Labels model_;   // of ours
};

prometheus::Counter& Ended(Metrics* metrics, const std::string& model, const std::string& reason) {
  Metrics::Labels labels = EngineLabels(model);
  labels["finished_reason"] = reason;
  return metrics->Counter("vllm:request_success_total", "Choices that ended, by reason.", labels);
}

}  // namespace

RouterMetrics::Model RouterMetrics::Make(const std::string& model, int64_t max_positions) {
  const Maker make(metrics_, model);
  const std::vector<double> lengths = TokenCountBuckets(max_positions);
  for (const char* reason : {"stop", "length", "abort", "error"}) Ended(metrics_, model, reason);
  return {
      .ttft_exemplars = make.Exemplars(kTtft, TimeToFirstTokenBuckets()),
      .inter_token_exemplars = make.Exemplars(kInterToken, InterTokenBuckets()),
      .e2e_exemplars = make.Exemplars(kE2e, RequestLatencyBuckets()),
      .ttft_s = make.Histogram(kTtft, "From a request's arrival to its first token.",
                               TimeToFirstTokenBuckets()),
      .inter_token_s =
          make.Histogram(kInterToken, "Between two tokens of one choice.", InterTokenBuckets()),
      .e2e_s = make.Latency(kE2e, "From a request's arrival to its end."),
      .queue_s = make.Latency("vllm:request_queue_time_seconds",
                              "From a choice's admission to the first step with its prompt."),
      .plan_s = make.Ours("skein_request_plan_time_seconds",
                          "From a choice's submission to its plan; a part of its queue time."),
      .prefill_s = make.Latency("vllm:request_prefill_time_seconds",
                                "From the first step with a prompt to the end of its last."),
      .handoff_s = make.Ours("skein_request_handoff_time_seconds",
                             "From the end of prefill until all KV is at the decode instance."),
      .decode_s = make.Latency("vllm:request_decode_time_seconds",
                               "From a choice's first token to its last."),
      .inference_s = make.Latency("vllm:request_inference_time_seconds",
                                  "Prefill, handoff and decode of a choice."),
      .time_per_output_token_s =
          make.Histogram("vllm:request_time_per_output_token_seconds",
                         "Mean time between the tokens of a choice.", InterTokenBuckets()),
      .prompt_length = make.Histogram("vllm:request_prompt_tokens",
                                      "Prompt tokens of a finished choice.", lengths),
      .generation_length = make.Histogram("vllm:request_generation_tokens",
                                          "Output tokens of a finished choice.", lengths),
      .max_generation_length =
          make.Histogram("vllm:request_max_num_generation_tokens",
                         "Output tokens of the longest choice of a prompt.", lengths),
      .params_n =
          make.Histogram("vllm:request_params_n", "Choices of a prompt.", ChoiceCountBuckets()),
      .params_max_tokens = make.Histogram("vllm:request_params_max_tokens",
                                          "max_tokens of a finished choice.", lengths),
      .prompt_tokens =
          make.Counter("vllm:prompt_tokens_total", "Prompt tokens of admitted requests."),
      .generation_tokens = make.Counter("vllm:generation_tokens_total", "Output tokens."),
      .running = make.Gauge("vllm:num_requests_running",
                            "Always 0: workers count the requests that are computed."),
      .waiting = make.Gauge("vllm:num_requests_waiting", "Requests that wait in this process."),
      .waiting_capacity = make.Capacity(),
      .queued = make.OurGauge("skein_router_queued", "Choices that wait for one of --max-streams."),
      .submitted =
          make.OurGauge("skein_router_submitted", "Choices that have no decode instance yet."),
      .streaming = make.OurGauge("skein_router_streaming", "Choices with a token stream."),
  };
}

// Answers of these kinds are alerted on: their first increment has to be seen as one.
void RouterMetrics::AddAnswers() {
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/v1/responses"}) {
    for (const int status : {200, 400, 429, 499, 500, 503, 504}) AnswersOf(path, status);
  }
}

prometheus::Counter& RouterMetrics::AnswersOf(const std::string& path, int status) {
  return metrics_->Counter("skein_router_answers_total",
                           "API requests answered, by path and HTTP status.",
                           {{"path", path}, {"status", std::to_string(status)}});
}

void RouterMetrics::AddModel(const std::string& model, int64_t max_positions) {
  std::lock_guard<std::mutex> lock(mutex_);
  models_.try_emplace(model, Make(model, max_positions));
  gen_ai_.AddModel(model);
}

RouterMetrics::Model& RouterMetrics::Of(const std::string& model) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (const auto it = models_.find(model); it != models_.end()) return it->second;
  return models_.try_emplace(model, Make(model, int64_t{1} << 17)).first->second;
}

void RouterMetrics::CountFinished(const std::string& model, const FinishedChoice& choice) {
  Ended(metrics_, model, std::string(choice.reason)).Increment();
  Model& series = Of(model);
  const RequestTimes& times = choice.times;
  series.queue_s.Observe(Seconds(times.queue_us));
  series.plan_s.Observe(Seconds(times.plan_us));
  series.prefill_s.Observe(Seconds(times.prefill_us));
  series.handoff_s.Observe(Seconds(times.handoff_us));
  series.decode_s.Observe(Seconds(times.decode_us));
  series.inference_s.Observe(Seconds(times.prefill_us + times.handoff_us + times.decode_us));
  const int64_t gaps = choice.output_tokens - 1;
  series.time_per_output_token_s.Observe(
      gaps > 0 ? Seconds(times.decode_us) / static_cast<double>(gaps) : 0);
  series.prompt_length.Observe(static_cast<double>(choice.prompt_tokens));
  series.generation_length.Observe(static_cast<double>(choice.output_tokens));
  series.params_max_tokens.Observe(static_cast<double>(choice.max_tokens));
}

void RouterMetrics::CountPrompt(const std::string& model, int64_t choices,
                                int64_t output_tokens_max) {
  Model& series = Of(model);
  series.params_n.Observe(static_cast<double>(choices));
  series.max_generation_length.Observe(static_cast<double>(output_tokens_max));
}

void RouterMetrics::CountEnds(const std::string& model, const std::string& reason, size_t choices) {
  Ended(metrics_, model, reason).Increment(static_cast<double>(choices));
}

void RouterMetrics::CountAnswer(const std::string& path, int status) {
  AnswersOf(path, status).Increment();
}

void RouterMetrics::CountUnknownParameters(const std::string& path, int64_t count) {
  metrics_
      ->Counter("skein_router_unknown_parameters_total",
                "Parameters of requests that the API does not have, by path.", {{"path", path}})
      .Increment(static_cast<double>(count));
}

void RouterMetrics::RefreshTrace(uint64_t written, uint64_t dropped) {
  for (const auto& [result, value] :
       {std::pair("written", written), std::pair("dropped", dropped)}) {
    metrics_->Total("skein_router_trace_choices_total", "Choices for --record-trace, by result.",
                    {{"result", result}}, value);
  }
}

void RouterMetrics::RefreshAudit(const AuditLog::Counts& counts) {
  for (const auto& [result, value] :
       {std::pair("written", counts.written), std::pair("lost", counts.lost)}) {
    metrics_->Total("skein_router_audit_lines_total", "Lines of --audit-log, by result.",
                    {{"result", result}}, value);
  }
  metrics_
      ->Gauge("skein_router_audit_failing",
              "1 while --audit-log cannot be written, and its lines wait.")
      .Set(counts.failing ? 1 : 0);
}

void RouterMetrics::RefreshKeyRefusals(const KeyRefusals& refusals) {
  for (const auto& [reason, value] :
       {std::pair("missing", refusals.missing), std::pair("wrong", refusals.wrong),
        std::pair("held_off", refusals.held)}) {
    metrics_->Total("skein_router_key_refusals_total",
                    "Requests without a valid API key, by reason.", {{"reason", reason}}, value);
  }
}

void RouterMetrics::RefreshHeldBytes(const http::ByteBudget& bodies) {
  metrics_
      ->Gauge("skein_router_held_bytes", "Bytes that bodies and prompts of running requests hold.")
      .Set(static_cast<double>(bodies.held_bytes()));
  metrics_
      ->Gauge("skein_router_held_bytes_limit",
              "Limit of skein_router_held_bytes (--max-held-bytes).")
      .Set(static_cast<double>(bodies.bytes_max()));
  metrics_->Total("skein_router_held_bytes_refusals_total",
                  "Requests refused because --max-held-bytes was reached.", {}, bodies.refusals());
}

void RouterMetrics::Refresh(const scheduler::RouterSnapshot& snapshot, int64_t now_us,
                            size_t connections) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [name, series] : models_) {
      const auto found = snapshot.models.find(name);
      const auto now =
          found == snapshot.models.end() ? scheduler::RouterSnapshot::OfModel() : found->second;
      series.waiting.Set(static_cast<double>(now.queued));
      series.waiting_capacity.Set(static_cast<double>(now.queued));
      series.queued.Set(static_cast<double>(now.queued));
      series.submitted.Set(static_cast<double>(now.submitted));
      series.streaming.Set(static_cast<double>(now.streaming));
    }
  }
  const auto gauge = [this](const char* name, const char* help, double value) {
    metrics_->Gauge(name, help).Set(value);
  };
  gauge("skein_router_oldest_wait_seconds", "How long the oldest queued choice waits.",
        snapshot.queued == 0 ? 0 : Seconds(now_us - snapshot.oldest_arrival_us));
  gauge("skein_router_connections", "Open client connections.", static_cast<double>(connections));
  const auto total = [this](const char* result, uint64_t value) {
    metrics_->Total("skein_router_requests_total", "Choices, by result.", {{"result", result}},
                    value);
  };
  total("accepted", snapshot.accepted);
  total("rejected", snapshot.rejected);
  total("finished", snapshot.finished);
  total("cancelled", snapshot.cancelled);
  total("failed", snapshot.failed);
  total("index_error", snapshot.index_errors);
  for (const auto& [reason, value] :
       {std::pair("refused", snapshot.moved_refused), std::pair("lost", snapshot.moved_lost)}) {
    metrics_->Total(
        "skein_router_moved_requests_total",
        "Choices moved to another cell, by reason: their cell refused them or was lost.",
        {{"reason", reason}}, value);
  }
  metrics_->Total("skein_router_resumes_total",
                  "Times that a choice was tried again because its instances were lost or drain.",
                  {}, snapshot.resumes);
  metrics_->Total("skein_router_drain_moves_total",
                  "Of skein_router_resumes_total, times that a choice was moved because its "
                  "decode-worker drains.",
                  {}, snapshot.moves);
  metrics_->Total("skein_router_unreached_total",
                  "Of skein_router_resumes_total, times that a choice was tried elsewhere at once "
                  "because this router does not reach its decode-worker.",
                  {}, snapshot.unreached);
  metrics_->Total("skein_router_retries_delayed_total",
                  "Of skein_router_resumes_total, times that the next attempt waited for the "
                  "budget of retries.",
                  {}, snapshot.retries_delayed);
  metrics_->Total(
      "skein_router_reattached_streams_total",
      "Times that a choice went on at its decode instance after its token stream broke.", {},
      snapshot.reattached);
  const auto goals = [this](const char* goal, const scheduler::RouterSnapshot::Goal& of) {
    for (const auto& [result, value] : {std::pair("met", of.met), std::pair("missed", of.missed)}) {
      metrics_->Total("skein_router_goals_total",
                      "Choices that ended and had a goal (ttft, tpot), by whether they reached it.",
                      {{"goal", goal}, {"result", result}}, value);
    }
  };
  goals("ttft", snapshot.ttft_goals);
  goals("tpot", snapshot.tpot_goals);
  int64_t ready = 0;
  for (const bool cell : snapshot.ready) ready += cell ? 1 : 0;
  gauge("skein_router_cells", "Orchestrators in --orchestrator.",
        static_cast<double>(snapshot.ready.size()));
  gauge("skein_router_cells_ready", "Orchestrators to which this router is connected.",
        static_cast<double>(ready));
}

}  // namespace skein::services
