// Statistics of a load's records: distributions, throughput, goodput, errors. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/skeinctl/bench/record.h"

namespace skein::services::bench {

// Of one number, sorted. Percentiles interpolate linearly between neighbours, as numpy and AIPerf
// do. All 0 of no values.
class Distribution {
 public:
  explicit Distribution(std::vector<double> values);

  size_t count() const { return sorted_.size(); }
  double Percentile(double percent) const;
  double min() const { return Percentile(0); }
  double max() const { return Percentile(100); }
  double sum() const { return sum_; }
  double mean() const;
  double deviation() const;  // of a sample: n - 1

 private:
  std::vector<double> sorted_;
  double sum_ = 0;
};

// One request, milliseconds and tokens. Latencies count from the moment at which it was to be sent,
// so that a client or a server that falls behind does not hide it (coordinated omission).
struct RequestTimes {
  double request_latency_ms = 0;                 // to its last text
  std::optional<double> time_to_first_token_ms;  // of a streamed answer
  // (request latency - TTFT) / (output tokens - 1): without the first token. None below 2 tokens.
  std::optional<double> inter_token_latency_ms;
  std::optional<double> output_tokens_per_s;  // of its user: 1 / inter-token latency
};
// REQUIRES record.ok().
RequestTimes TimesOf(const RequestRecord& record, bool streaming);

// A limit that a good request keeps. In milliseconds, but output_token_throughput_per_user in
// tokens/s, of which a good request has at least so many.
struct Objective {
  std::string metric;
  double limit = 0;
};

// "time_to_first_token:2000 inter_token_latency:25", with spaces or commas between. The metrics are
// time_to_first_token, inter_token_latency, request_latency and output_token_throughput_per_user.
// INVALID_ARGUMENT names the part that is wrong.
absl::StatusOr<std::vector<Objective>> ParseObjectives(const std::string& text);

// All objectives are kept. A metric that a request does not have (the inter-token latency of an
// answer of one token) is kept.
bool IsGood(const RequestTimes& times, const std::vector<Objective>& objectives);

struct ErrorCount {
  std::string kind;
  int status = 0;
  std::string message;  // of the first one
  int64_t count = 0;
};

struct Statistics {
  int64_t completed = 0;
  int64_t failed = 0;
  double duration_s = 0;           // from the first request's intended moment to the last end
  std::vector<ErrorCount> errors;  // by kind, the most frequent first

  Distribution request_latency_ms{{}};
  Distribution time_to_first_token_ms{{}};
  Distribution inter_token_latency_ms{{}};
  Distribution inter_chunk_latency_ms{{}};  // between events with text
  Distribution output_tokens_per_s_per_user{{}};
  Distribution input_tokens{{}};
  Distribution output_tokens{{}};
  Distribution send_delay_ms{{}};  // how late the client itself was; of all requests

  std::optional<int64_t> good;  // none without objectives

  double requests_per_s() const;
  double output_tokens_per_s() const;
};

Statistics Summarise(const std::vector<RequestRecord>& records, bool streaming,
                     const std::vector<Objective>& objectives);

}  // namespace skein::services::bench
