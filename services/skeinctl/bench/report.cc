#include "services/skeinctl/bench/report.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace skein::services::bench {
namespace {

using Json = nlohmann::ordered_json;

struct Row {
  const char* name;   // AIPerf's
  const char* title;  // for people
  const char* unit;
  const Distribution Statistics::*of;
};

constexpr std::array<Row, 8> kRows = {{
    {"time_to_first_token", "Time to first token", "ms", &Statistics::time_to_first_token_ms},
    {"inter_token_latency", "Inter-token latency", "ms", &Statistics::inter_token_latency_ms},
    {"inter_chunk_latency", "Between events", "ms", &Statistics::inter_chunk_latency_ms},
    {"request_latency", "Request latency", "ms", &Statistics::request_latency_ms},
    {"output_token_throughput_per_user", "Output per user", "tokens/sec/user",
     &Statistics::output_tokens_per_s_per_user},
    {"input_sequence_length", "Input length", "tokens", &Statistics::input_tokens},
    {"output_sequence_length", "Output length", "tokens", &Statistics::output_tokens},
    {"send_delay", "Send delay (client)", "ms", &Statistics::send_delay_ms},
}};

// Four significant digits, no exponent.
std::string Cell(double value) {
  if (value >= 1000 || value == 0) return absl::StrFormat("%.0f", value);
  return absl::StrFormat("%.*f", value >= 100 ? 1 : value >= 10 ? 2 : 3, value);
}

Json Scalar(const char* unit, double value) { return {{"unit", unit}, {"avg", value}}; }

Json Full(const char* unit, const Distribution& of) {
  Json json = {{"unit", unit}, {"avg", of.mean()}};
  for (const int percent : {1, 5, 10, 25, 50, 75, 90, 95, 99}) {
    json[absl::StrCat("p", percent)] = of.Percentile(percent);
  }
  json["min"] = of.min();
  json["max"] = of.max();
  json["std"] = of.deviation();
  json["count"] = of.count();
  json["sum"] = of.sum();
  return json;
}

std::string Iso(int64_t unix_us) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::FromUnixMicros(unix_us),
                          absl::UTCTimeZone());
}

Json InputConfig(const RunDescription& run) {
  Json load = {{"request_count", run.requests}, {"warmup_request_count", run.warmup_requests}};
  if (run.concurrency > 0) load["concurrency"] = run.concurrency;
  if (run.request_rate > 0) load["request_rate"] = run.request_rate;
  if (!run.arrivals.empty()) load["arrival_pattern"] = run.arrivals;
  Json input = {{"random_seed", run.seed}, {"description", run.data}};
  std::string goodput;
  for (const Objective& one : run.objectives) {
    absl::StrAppend(&goodput, goodput.empty() ? "" : " ", one.metric, ":", one.limit);
  }
  if (!goodput.empty()) input["goodput"] = goodput;
  return {{"endpoint",
           {{"model_names", {run.model}},
            {"type", run.endpoint},
            {"streaming", run.streaming},
            {"url", run.url}}},
          {"loadgen", load},
          {"input", input}};
}

Json ErrorJson(const std::string& kind, int status, const std::string& message) {
  Json error = {{"type", kind}, {"message", message}};
  if (status > 0) error["code"] = status;
  return error;
}

std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string Table(const RunDescription& run, const Statistics& s) {
  std::string text = absl::StrFormat("%s, %s, %s%s\n%s; %s\n\n", run.url, run.model, run.endpoint,
                                     run.streaming ? ", streamed" : "", run.data, run.load);
  absl::StrAppendFormat(&text, "%-22s %-15s %9s %9s %9s %9s %9s %9s\n", "", "", "mean", "p50",
                        "p90", "p95", "p99", "max");
  for (const Row& row : kRows) {
    const Distribution& of = s.*row.of;
    if (of.count() == 0) continue;
    absl::StrAppendFormat(&text, "%-22s %-15s %9s %9s %9s %9s %9s %9s\n", row.title, row.unit,
                          Cell(of.mean()), Cell(of.Percentile(50)), Cell(of.Percentile(90)),
                          Cell(of.Percentile(95)), Cell(of.Percentile(99)), Cell(of.max()));
  }
  absl::StrAppendFormat(&text, "\n%d requests completed, %d failed, in %s s%s\n", s.completed,
                        s.failed, Cell(s.duration_s), run.cancelled ? " (cancelled)" : "");
  absl::StrAppendFormat(&text, "%s requests/s, %s output tokens/s\n", Cell(s.requests_per_s()),
                        Cell(s.output_tokens_per_s()));
  if (s.good.has_value()) {
    const double all = static_cast<double>(std::max<int64_t>(1, s.completed + s.failed));
    absl::StrAppendFormat(
        &text, "goodput: %s requests/s; %d of %d requests kept every objective (%.1f %%)\n",
        Cell(s.duration_s > 0 ? static_cast<double>(*s.good) / s.duration_s : 0), *s.good,
        s.completed + s.failed, 100 * static_cast<double>(*s.good) / all);
  }
  if (s.errors.empty()) return text;
  text += "errors:\n";
  for (const ErrorCount& error : s.errors) {
    absl::StrAppendFormat(&text, "  %6d  %-20s first: %s\n", error.count, error.kind,
                          error.message);
  }
  return text;
}

std::string AiperfJson(const RunDescription& run, const Statistics& s) {
  Json json = {{"schema_version", "1.1"}, {"skein_version", run.version}};
  const auto count = [](int64_t value) { return Scalar("requests", static_cast<double>(value)); };
  json["request_throughput"] = Scalar("requests/sec", s.requests_per_s());
  json["request_count"] = count(s.completed);
  if (s.failed > 0) json["error_request_count"] = count(s.failed);
  for (const Row& row : kRows) {
    if ((s.*row.of).count() > 0) json[row.name] = Full(row.unit, s.*row.of);
  }
  json["output_token_throughput"] = Scalar("tokens/sec", s.output_tokens_per_s());
  json["total_isl"] = Scalar("tokens", s.input_tokens.sum());
  json["total_osl"] = Scalar("tokens", s.output_tokens.sum());
  json["benchmark_duration"] = Scalar("sec", s.duration_s);
  if (s.good.has_value()) {
    json["goodput"] =
        Scalar("requests/sec", s.duration_s > 0 ? static_cast<double>(*s.good) / s.duration_s : 0);
    json["good_request_count"] = count(*s.good);
  }
  json["input_config"] = InputConfig(run);
  json["was_cancelled"] = run.cancelled;
  json["error_summary"] = Json::array();
  for (const ErrorCount& error : s.errors) {
    json["error_summary"].push_back(
        {{"error_details", ErrorJson(error.kind, error.status, error.message)},
         {"count", error.count}});
  }
  json["start_time"] = Iso(run.started_unix_us);
  json["end_time"] = Iso(run.started_unix_us + static_cast<int64_t>(s.duration_s * 1e6));
  return Dump(json, 2) + "\n";
}

std::string RecordLines(const RunDescription& run, const std::vector<RequestRecord>& records) {
  std::string text;
  const auto unix_ns = [&](double at_s) {
    return run.started_unix_us * 1000 + static_cast<int64_t>(at_s * 1e9);
  };
  for (const RequestRecord& record : records) {
    Json line = {{"metadata",
                  {{"session_num", record.number},
                   {"request_start_ns", unix_ns(record.sent_s)},
                   {"request_intended_ns", unix_ns(record.intended_s)},
                   {"request_end_ns", unix_ns(record.end_s)},
                   {"benchmark_phase", "profiling"},
                   {"was_cancelled", record.error == "cancelled"}}}};
    Json metrics = Json::object();
    const auto add = [&](const char* name, const char* unit, std::optional<double> value) {
      if (value.has_value()) metrics[name] = {{"value", *value}, {"unit", unit}};
    };
    if (record.ok()) {
      const RequestTimes times = TimesOf(record, run.streaming);
      add("time_to_first_token", "ms", times.time_to_first_token_ms);
      add("inter_token_latency", "ms", times.inter_token_latency_ms);
      add("request_latency", "ms", times.request_latency_ms);
      add("output_token_throughput_per_user", "tokens/sec/user", times.output_tokens_per_s);
      add("input_sequence_length", "tokens", static_cast<double>(record.input_tokens));
      add("output_sequence_length", "tokens", static_cast<double>(record.output_tokens));
    }
    line["metrics"] = metrics;
    line["error"] = record.ok() ? Json() : ErrorJson(record.error, record.status, record.message);
    absl::StrAppend(&text, Dump(line, -1), "\n");
  }
  return text;
}

}  // namespace skein::services::bench
