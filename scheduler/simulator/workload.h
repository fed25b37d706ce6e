// The simulated load: requests with arrivals and lengths. Times are rounded to whole microseconds
// and lengths to whole tokens, so that rounding differences between libraries do not change a run:
// the same seed gives the same requests everywhere.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/simulator/random.h"

namespace skein::scheduler {

struct SimRequest {
  double arrival_s = 0;  // from the start of the run, ascending in a workload
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;  // the first one comes from prefill

  bool operator==(const SimRequest&) const = default;
};

// A log-normal distribution truncated to [min, max].
class LengthDistribution {
 public:
  // Has the given mean after truncation. Tetris gives only range and mean of its traces (section
  // 7.1). So sigma is chosen such that the range is as wide as the central 98 % of the untruncated
  // distribution, ln(max / min) / (2 * 2.326); mu then follows from the mean. REQUIRES 0 < min <
  // mean < max.
  static LengthDistribution WithMean(double min, double max, double mean);

  // The paper's traces: short (4k-95k, mean 23.6k), medium (8k-142k, mean 32.8k), long (16k-190k,
  // mean 50.1k), k = 1000. NOT_FOUND for another name.
  static absl::StatusOr<LengthDistribution> OfPaper(std::string_view trace);
  // Output lengths: 16-1024, mean 200. The paper does not give them.
  static LengthDistribution Outputs();

  int64_t Sample(Random* random) const;
  double Mean() const;  // after truncation
  double mu() const { return mu_; }
  double sigma() const { return sigma_; }

 private:
  double min_ = 0;
  double max_ = 0;
  double mu_ = 0;
  double sigma_ = 0;
};

struct ArrivalOptions {
  double requests_per_s = 1;
  int64_t requests = 1000;
  int64_t burst = 1;  // requests that arrive at the same moment; 1: a Poisson process
  uint64_t seed = 1;
};

// Bursts arrive as a Poisson process with rate requests_per_s / burst. Lengths and gaps use
// separate streams of the seed: at another rate the same requests arrive, with scaled gaps.
std::vector<SimRequest> GenerateWorkload(const LengthDistribution& prompts,
                                         const LengthDistribution& outputs,
                                         const ArrivalOptions& options);

// The same, with lengths sampled from `sample` (with replacement).
std::vector<SimRequest> ResampleWorkload(const std::vector<SimRequest>& sample,
                                         const ArrivalOptions& options);

// Requests per second from the first arrival to the last; 0 if all arrive together.
double MeanRate(const std::vector<SimRequest>& requests);

// Scales the arrivals to this mean rate. INVALID_ARGUMENT when all arrive at the same moment.
absl::Status RescaleToRate(double requests_per_s, std::vector<SimRequest>* requests);

// INVALID_ARGUMENT names the request and the field: no requests; a time that is negative, not
// finite or before the previous one; a prompt without tokens or above 2^40; a negative output.
absl::Status CheckWorkload(const std::vector<SimRequest>& requests);

}  // namespace skein::scheduler
