// What is simulated: requests with their arrivals and lengths. Times are rounded to whole
// microseconds and lengths to whole tokens, so that the last bit of a library's logarithm does not
// change a run: the same seed gives the same requests everywhere.
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
  int64_t output_tokens = 0;  // the first of them comes from prefill

  bool operator==(const SimRequest&) const = default;
};

// A log-normal distribution cut to [min, max].
class LengthDistribution {
 public:
  // Meets `mean` after the cut. Tetris gives only range and mean of its traces (section 7.1), so
  // sigma is chosen such that the range is as wide as the central 98 % of the uncut distribution,
  // ln(max / min) / (2 * 2.326); then mu follows from the mean. REQUIRES 0 < min < mean < max.
  static LengthDistribution WithMean(double min, double max, double mean);

  // The paper's traces: short (4k-95k, mean 23.6k), medium (8k-142k, mean 32.8k), long (16k-190k,
  // mean 50.1k), k = 1000. NOT_FOUND for another name.
  static absl::StatusOr<LengthDistribution> OfPaper(std::string_view trace);
  // Output lengths, which the paper does not give: 16-1024, mean 200.
  static LengthDistribution Outputs();

  int64_t Sample(Random* random) const;
  double Mean() const;  // after the cut
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

// Bursts arrive as a Poisson process of requests_per_s / burst. Lengths and gaps come from separate
// streams of the seed: at another rate the same requests arrive, only closer together.
std::vector<SimRequest> GenerateWorkload(const LengthDistribution& prompts,
                                         const LengthDistribution& outputs,
                                         const ArrivalOptions& options);

// The same, with lengths drawn from the requests of `sample` (with replacement).
std::vector<SimRequest> ResampleWorkload(const std::vector<SimRequest>& sample,
                                         const ArrivalOptions& options);

// Requests a second from the first arrival to the last; 0 if that is no span of time.
double MeanRate(const std::vector<SimRequest>& requests);

// Stretches the arrivals to this mean rate. INVALID_ARGUMENT when all arrive at one moment.
absl::Status RescaleToRate(double requests_per_s, std::vector<SimRequest>* requests);

// INVALID_ARGUMENT names the request and the field: no request, a time that is negative, not finite
// or before the one above, a prompt without tokens or above 2^40, a negative output.
absl::Status CheckWorkload(const std::vector<SimRequest>& requests);

}  // namespace skein::scheduler
