#include "scheduler/simulator/workload.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

double NormalCdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

double CutMean(double min, double max, double mu, double sigma) {
  const double low = (std::log(min) - mu) / sigma;
  const double high = (std::log(max) - mu) / sigma;
  return std::exp(mu + sigma * sigma / 2) * (NormalCdf(high - sigma) - NormalCdf(low - sigma)) /
         (NormalCdf(high) - NormalCdf(low));
}

double WholeMicroseconds(double seconds) { return std::round(seconds * 1e6) * 1e-6; }

// `length(random)` makes a request without its arrival time.
template <typename Length>
std::vector<SimRequest> Generate(const ArrivalOptions& options, const Length& length) {
  SKEIN_CHECK(options.requests_per_s > 0 && options.burst > 0 && options.requests >= 0);
  Random gaps(options.seed);
  Random lengths(gaps.Next());
  std::vector<SimRequest> requests;
  requests.reserve(static_cast<size_t>(options.requests));
  const double mean_gap_s = static_cast<double>(options.burst) / options.requests_per_s;
  double now_s = 0;
  for (int64_t i = 0; i < options.requests; ++i) {
    if (i % options.burst == 0) now_s += gaps.Exponential(mean_gap_s);
    requests.push_back(length(&lengths));
    requests.back().arrival_s = WholeMicroseconds(now_s);
  }
  return requests;
}

}  // namespace

LengthDistribution LengthDistribution::WithMean(double min, double max, double mean) {
  SKEIN_CHECK(0 < min && min < mean && mean < max);
  LengthDistribution result;
  result.min_ = min;
  result.max_ = max;
  result.sigma_ = std::log(max / min) / (2 * 2.326);
  double low = std::log(min) - 4 * result.sigma_;
  double high = std::log(max) + 4 * result.sigma_;
  for (int i = 0; i < 80; ++i) {
    const double middle = (low + high) / 2;
    (CutMean(min, max, middle, result.sigma_) < mean ? low : high) = middle;
  }
  result.mu_ = (low + high) / 2;
  return result;
}

absl::StatusOr<LengthDistribution> LengthDistribution::OfPaper(std::string_view trace) {
  if (trace == "short") return WithMean(4e3, 95e3, 23.6e3);
  if (trace == "medium") return WithMean(8e3, 142e3, 32.8e3);
  if (trace == "long") return WithMean(16e3, 190e3, 50.1e3);
  return absl::NotFoundError(absl::StrCat(
      "'", std::string(trace), "' is not one of the paper's traces (short, medium, long)"));
}

LengthDistribution LengthDistribution::Outputs() { return WithMean(16, 1024, 200); }

double LengthDistribution::Mean() const { return CutMean(min_, max_, mu_, sigma_); }

int64_t LengthDistribution::Sample(Random* random) const {
  for (;;) {
    const double length = std::exp(mu_ + sigma_ * random->Normal());
    if (length >= min_ && length <= max_) return std::llround(length);
  }
}

std::vector<SimRequest> GenerateWorkload(const LengthDistribution& prompts,
                                         const LengthDistribution& outputs,
                                         const ArrivalOptions& options) {
  return Generate(options, [&](Random* random) {
    const int64_t prompt_tokens = prompts.Sample(random);
    return SimRequest{0, prompt_tokens, outputs.Sample(random)};
  });
}

std::vector<SimRequest> ResampleWorkload(const std::vector<SimRequest>& sample,
                                         const ArrivalOptions& options) {
  SKEIN_CHECK(!sample.empty());
  return Generate(options, [&](Random* random) {
    return sample[static_cast<size_t>(random->Below(sample.size()))];
  });
}

double MeanRate(const std::vector<SimRequest>& requests) {
  if (requests.size() < 2) return 0;
  const double span_s = requests.back().arrival_s - requests.front().arrival_s;
  return span_s > 0 ? static_cast<double>(requests.size() - 1) / span_s : 0;
}

absl::Status RescaleToRate(double requests_per_s, std::vector<SimRequest>* requests) {
  const double recorded = MeanRate(*requests);
  if (recorded <= 0 || !(requests_per_s > 0)) {
    return absl::InvalidArgumentError(
        "all requests arrive at the same moment, so no rate can be set");
  }
  const double first_s = requests->front().arrival_s;
  const double scale = recorded / requests_per_s;
  for (SimRequest& request : *requests) {
    request.arrival_s = WholeMicroseconds((request.arrival_s - first_s) * scale);
  }
  return absl::OkStatus();
}

absl::Status CheckWorkload(const std::vector<SimRequest>& requests) {
  if (requests.empty()) return absl::InvalidArgumentError("requests: none");
  double before_s = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const SimRequest& request = requests[i];
    const auto bad = [&](const char* field) {
      return absl::InvalidArgumentError(absl::StrFormat("request %d: %s", i, field));
    };
    if (!std::isfinite(request.arrival_s) || request.arrival_s < before_s) return bad("arrival_s");
    if (request.prompt_tokens <= 0 || request.prompt_tokens > (int64_t{1} << 40)) {
      return bad("prompt_tokens");
    }
    if (request.output_tokens < 0 || request.output_tokens > (int64_t{1} << 40)) {
      return bad("output_tokens");
    }
    before_s = request.arrival_s;
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
