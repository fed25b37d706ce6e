#include "services/skeinctl/bench/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace skein::services::bench {
namespace {

constexpr const char* kPerUser = "output_token_throughput_per_user";
constexpr std::array<const char*, 4> kMetrics = {"time_to_first_token", "inter_token_latency",
                                                 "request_latency", kPerUser};

std::optional<double> Value(const RequestTimes& times, const std::string& metric) {
  if (metric == kMetrics[0]) return times.time_to_first_token_ms;
  if (metric == kMetrics[1]) return times.inter_token_latency_ms;
  if (metric == kMetrics[2]) return times.request_latency_ms;
  return times.output_tokens_per_s;
}

std::vector<ErrorCount> CountErrors(const std::vector<RequestRecord>& records) {
  std::vector<ErrorCount> errors;
  for (const RequestRecord& record : records) {
    if (record.ok()) continue;
    auto it = std::find_if(errors.begin(), errors.end(),
                           [&](const ErrorCount& e) { return e.kind == record.error; });
    if (it == errors.end()) {
      it = errors.insert(errors.end(), {record.error, record.status, record.message, 0});
    }
    ++it->count;
  }
  std::stable_sort(errors.begin(), errors.end(),
                   [](const auto& a, const auto& b) { return a.count > b.count; });
  return errors;
}

double DurationS(const std::vector<RequestRecord>& records) {
  double begin_s = std::numeric_limits<double>::infinity();
  double end_s = 0;
  for (const RequestRecord& record : records) {
    begin_s = std::min(begin_s, record.intended_s);
    end_s = std::max(end_s, record.end_s);
  }
  return records.empty() ? 0 : end_s - begin_s;
}

}  // namespace

Distribution::Distribution(std::vector<double> values)
    : sorted_(std::move(values)), sum_(std::accumulate(sorted_.begin(), sorted_.end(), 0.0)) {
  std::sort(sorted_.begin(), sorted_.end());
}

double Distribution::Percentile(double percent) const {
  if (sorted_.empty()) return 0;
  const double place = percent / 100 * static_cast<double>(sorted_.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted_.size() - 1);
  return sorted_[below] + (place - std::floor(place)) * (sorted_[above] - sorted_[below]);
}

double Distribution::mean() const {
  return sorted_.empty() ? 0 : sum_ / static_cast<double>(sorted_.size());
}

double Distribution::deviation() const {
  if (sorted_.size() < 2) return 0;
  double squares = 0;
  for (const double value : sorted_) squares += (value - mean()) * (value - mean());
  return std::sqrt(squares / static_cast<double>(sorted_.size() - 1));
}

RequestTimes TimesOf(const RequestRecord& record, bool streaming) {
  RequestTimes times;
  times.request_latency_ms = (record.last_text_s() - record.intended_s) * 1e3;
  if (!streaming) return times;
  times.time_to_first_token_ms = (record.first_text_s() - record.intended_s) * 1e3;
  if (record.output_tokens < 2) return times;
  times.inter_token_latency_ms = (times.request_latency_ms - *times.time_to_first_token_ms) /
                                 static_cast<double>(record.output_tokens - 1);
  if (*times.inter_token_latency_ms > 0) {
    times.output_tokens_per_s = 1e3 / *times.inter_token_latency_ms;
  }
  return times;
}

absl::StatusOr<std::vector<Objective>> ParseObjectives(const std::string& text) {
  std::vector<Objective> objectives;
  for (const absl::string_view part :
       absl::StrSplit(text, absl::ByAnyChar(" ,"), absl::SkipEmpty())) {
    const std::pair<std::string, std::string> halves =
        absl::StrSplit(part, absl::MaxSplits(':', 1));
    Objective objective{halves.first, 0};
    const bool known = std::find(kMetrics.begin(), kMetrics.end(), halves.first) != kMetrics.end();
    if (!known || !absl::SimpleAtod(halves.second, &objective.limit) ||
        !std::isfinite(objective.limit) || objective.limit <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", part,
                       "' is not METRIC:LIMIT with METRIC one of time_to_first_token, "
                       "inter_token_latency, request_latency (milliseconds) or "
                       "output_token_throughput_per_user (tokens/s)"));
    }
    objectives.push_back(std::move(objective));
  }
  return objectives;
}

bool IsGood(const RequestTimes& times, const std::vector<Objective>& objectives) {
  return std::all_of(objectives.begin(), objectives.end(), [&](const Objective& objective) {
    const std::optional<double> value = Value(times, objective.metric);
    if (!value.has_value()) return true;
    return objective.metric == kPerUser ? *value >= objective.limit : *value <= objective.limit;
  });
}

double Statistics::requests_per_s() const {
  return duration_s > 0 ? static_cast<double>(completed) / duration_s : 0;
}

double Statistics::output_tokens_per_s() const {
  return duration_s > 0 ? output_tokens.sum() / duration_s : 0;
}

Statistics Summarise(const std::vector<RequestRecord>& records, bool streaming,
                     const std::vector<Objective>& objectives) {
  Statistics result;
  std::vector<double> latency, ttft, itl, chunks, per_user, input, output, delay;
  int64_t good = 0;
  const auto add = [](const std::optional<double>& value, std::vector<double>* to) {
    if (value.has_value()) to->push_back(*value);
  };
  for (const RequestRecord& record : records) {
    delay.push_back((record.sent_s - record.intended_s) * 1e3);
    if (!record.ok()) continue;
    const RequestTimes times = TimesOf(record, streaming);
    latency.push_back(times.request_latency_ms);
    add(times.time_to_first_token_ms, &ttft);
    add(times.inter_token_latency_ms, &itl);
    add(times.output_tokens_per_s, &per_user);
    input.push_back(static_cast<double>(record.input_tokens));
    output.push_back(static_cast<double>(record.output_tokens));
    for (size_t i = 1; i < record.text_s.size(); ++i) {
      chunks.push_back((record.text_s[i] - record.text_s[i - 1]) * 1e3);
    }
    good += IsGood(times, objectives) ? 1 : 0;
  }
  result.completed = static_cast<int64_t>(latency.size());
  result.failed = static_cast<int64_t>(records.size()) - result.completed;
  result.duration_s = DurationS(records);
  result.errors = CountErrors(records);
  result.request_latency_ms = Distribution(std::move(latency));
  result.time_to_first_token_ms = Distribution(std::move(ttft));
  result.inter_token_latency_ms = Distribution(std::move(itl));
  result.inter_chunk_latency_ms = Distribution(std::move(chunks));
  result.output_tokens_per_s_per_user = Distribution(std::move(per_user));
  result.input_tokens = Distribution(std::move(input));
  result.output_tokens = Distribution(std::move(output));
  result.send_delay_ms = Distribution(std::move(delay));
  if (!objectives.empty()) result.good = good;
  return result;
}

}  // namespace skein::services::bench
