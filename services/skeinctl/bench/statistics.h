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

// The distribution of one number, sorted. Percentiles interpolate linearly between neighbours, like
// numpy and AIPerf. Without values all results are 0.
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

// One request, in milliseconds and tokens. Latencies count from the intended send time, so that a
// slow client or server does not hide them (coordinated omission).
struct RequestTimes {
  double request_latency_ms = 0;                 // to its last text
  std::optional<double> time_to_first_token_ms;  // for a streamed answer
  // (request latency - TTFT) / (output tokens - 1): without the first token. None with less than 2
  // tokens.
  std::optional<double> inter_token_latency_ms;
  std::optional<double> output_tokens_per_s;  // for its user: 1 / inter-token latency
};
// REQUIRES record.ok().
RequestTimes TimesOf(const RequestRecord& record, bool streaming);

// A limit for a good request, in milliseconds; output_token_throughput_per_user is in tokens/s and
// is a minimum.
struct Objective {
  std::string metric;
  double limit = 0;
};

// "time_to_first_token:2000 inter_token_latency:25", separated by spaces or commas. Metrics:
// time_to_first_token, inter_token_latency, request_latency, output_token_throughput_per_user.
// INVALID_ARGUMENT names the wrong part.
absl::StatusOr<std::vector<Objective>> ParseObjectives(const std::string& text);

// Whether all objectives are met. A metric that a request lacks (the inter-token latency of a
// one-token answer) counts as met.
bool IsGood(const RequestTimes& times, const std::vector<Objective>& objectives);

struct ErrorCount {
  std::string kind;
  int status = 0;
  std::string message;  // of the first error
  int64_t count = 0;
};

struct Statistics {
  int64_t completed = 0;
  int64_t failed = 0;
  double duration_s = 0;           // from the first intended send time to the last end
  std::vector<ErrorCount> errors;  // by kind, the most frequent first

  Distribution request_latency_ms{{}};
  Distribution time_to_first_token_ms{{}};
  Distribution inter_token_latency_ms{{}};
  Distribution inter_chunk_latency_ms{{}};  // between events with text
  Distribution output_tokens_per_s_per_user{{}};
  Distribution input_tokens{{}};
  Distribution output_tokens{{}};
  Distribution send_delay_ms{{}};  // the client's own delay, for all requests

  std::optional<int64_t> good;  // none without objectives

  double requests_per_s() const;
  double output_tokens_per_s() const;
};

Statistics Summarise(const std::vector<RequestRecord>& records, bool streaming,
                     const std::vector<Objective>& objectives);

}  // namespace skein::services::bench
