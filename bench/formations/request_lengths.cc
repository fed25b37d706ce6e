#include "bench/formations/request_lengths.h"

#include <algorithm>
#include <cmath>

#include "scheduler/simulator/random.h"

namespace skein::bench {
namespace {

int64_t LengthAt(const std::array<int64_t, 11>& quantiles, double share) {
  const double at = share * 10;
  const auto below = std::min<size_t>(9, static_cast<size_t>(at));
  const auto from = static_cast<double>(quantiles[below]);
  const auto to = static_cast<double>(quantiles[below + 1]);
  return std::max<int64_t>(1, std::llround(from + (at - static_cast<double>(below)) * (to - from)));
}

}  // namespace

const LengthQuantiles& HumanEvalLengths() {
  static constexpr LengthQuantiles kLengths = {{29, 54, 65, 79, 90, 99, 112, 122, 152, 194, 340},
                                               {4, 10, 17, 23, 31, 37, 46, 54, 67, 93, 216}};
  return kLengths;
}

const LengthQuantiles& MooncakeLengths() {
  static constexpr LengthQuantiles kLengths = {
      {891, 964, 1662, 3263, 4993, 6909, 9570, 13196, 17869, 27367, 126195},
      {1, 24, 100, 213, 291, 350, 399, 447, 504, 597, 2000}};
  return kLengths;
}

const LengthQuantiles& AzureLengths() {
  static constexpr LengthQuantiles kLengths = {
      {2, 207, 387, 403, 703, 1020, 1071, 1130, 1315, 2735, 14050},
      {7, 54, 77, 91, 103, 129, 177, 384, 400, 424, 1000}};
  return kLengths;
}

void MixLengths(const LengthQuantiles& a, const LengthQuantiles& b, uint64_t seed,
                std::vector<scheduler::GroupRequest>* requests) {
  scheduler::Random random(seed);
  for (scheduler::GroupRequest& request : *requests) {
    const LengthQuantiles& lengths = random.Uniform() <= 0.5 ? a : b;
    request.prompt_tokens = LengthAt(lengths.prompt, random.Uniform());
    request.output_tokens = LengthAt(lengths.output, random.Uniform());
  }
}

}  // namespace skein::bench
