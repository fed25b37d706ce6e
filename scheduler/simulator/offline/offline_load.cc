#include "scheduler/simulator/offline/offline_load.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "scheduler/simulator/random.h"

namespace skein::scheduler {
namespace {

constexpr int64_t kMostRequests = 10'000'000;
constexpr double kMostTokens = 1 << 24;

// Log-normal with this mean.
int64_t Length(double mean, double sigma, Random* random) {
  const double length = mean * std::exp(sigma * random->Normal() - sigma * sigma / 2);
  return std::max<int64_t>(1, std::llround(std::min(length, OfflineLoad::kLongest * mean)));
}

}  // namespace

absl::Status CheckOfflineLoad(const OfflineLoad& load) {
  if (load.requests < 1 || load.requests > kMostRequests) {
    return absl::InvalidArgumentError(
        absl::StrCat("requests: ", load.requests, " is not in 1 to ", kMostRequests));
  }
  const auto is_length = [](double tokens) { return tokens >= 1 && tokens <= kMostTokens; };
  if (!is_length(load.prompt_mean)) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt_mean: ", load.prompt_mean, " is not in 1 to ", kMostTokens));
  }
  if (!is_length(load.output_mean)) {
    return absl::InvalidArgumentError(
        absl::StrCat("output_mean: ", load.output_mean, " is not in 1 to ", kMostTokens));
  }
  if (load.sigma >= 0 && load.sigma <= 3) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("sigma: ", load.sigma, " is not in 0 to 3"));
}

std::vector<OfflineRequest> GenerateOfflineLoad(const OfflineLoad& load) {
  Random random(load.seed);
  std::vector<OfflineRequest> requests;
  requests.reserve(static_cast<size_t>(load.requests));
  for (int64_t i = 0; i < load.requests; ++i) {
    const int64_t prompt = Length(load.prompt_mean, load.sigma / 2, &random);
    requests.push_back({prompt, Length(load.output_mean, load.sigma, &random)});
  }
  return requests;
}

}  // namespace skein::scheduler
