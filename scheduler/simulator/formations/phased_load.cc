#include "scheduler/simulator/formations/phased_load.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/simulator/random.h"

namespace skein::scheduler {
namespace {

int64_t UniformIn(Random* random, int64_t min, int64_t max) {
  return min + static_cast<int64_t>(random->Below(static_cast<uint64_t>(max - min + 1)));
}

double UniformIn(Random* random, double min, double max) {
  return min + (max - min) * random->Uniform();
}

absl::Status Range(const char* field, double min, double max) {
  if (std::isfinite(max) && min > 0 && min <= max && max <= 1e9) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", min, " to ", max, " is not a range above 0 and up to 1e9"));
}

absl::Status Share(const char* field, double share) {
  if (share >= 0 && share <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", share, " is not in [0, 1]"));
}

class Generator {
 public:
  explicit Generator(const PhasedLoad& load)
      : load_(load), arrivals_(load.seed), lengths_(arrivals_.Next()) {}

  std::vector<GroupRequest> Generate() {
    bool burst = load_.quiet_s == 0;
    for (double start_s = 0; Wanted() > 0; burst = !burst) {
      const double length_s = burst ? load_.burst_s : load_.quiet_s;
      if (length_s > 0) Phase(start_s, length_s, burst);
      start_s += length_s;
    }
    return std::move(requests_);
  }

 private:
  int64_t Wanted() const { return load_.requests - static_cast<int64_t>(requests_.size()); }

  void Phase(double start_s, double length_s, bool burst) {
    const double rate = burst ? UniformIn(&arrivals_, load_.burst_rate_min, load_.burst_rate_max)
                              : UniformIn(&arrivals_, load_.quiet_rate_min, load_.quiet_rate_max);
    const bool follows_burst = !burst && start_s > 0 && load_.burst_s > 0;
    for (double at_s = arrivals_.Exponential(1 / rate); at_s < length_s && Wanted() > 0;
         at_s += arrivals_.Exponential(1 / rate)) {
      const LoadPhase phase = burst                                  ? LoadPhase::kBurst
                              : follows_burst && at_s < length_s / 2 ? LoadPhase::kAfter
                                                                     : LoadPhase::kQuiet;
      requests_.push_back(Next(std::llround((start_s + at_s) * 1e6), phase));
    }
  }

  GroupRequest Next(TimeUs arrival_us, LoadPhase phase) {
    GroupRequest request;
    request.arrival_us = arrival_us;
    request.phase = phase;
    request.prompt_tokens = UniformIn(&lengths_, load_.prompt_min, load_.prompt_max);
    request.output_tokens = UniformIn(&lengths_, load_.output_min, load_.output_max);
    request.priority = lengths_.Uniform() <= load_.priority_share ? 1 : 0;
    if (lengths_.Uniform() <= load_.long_share) request.prompt_tokens = load_.long_prompt;
    return request;
  }

  const PhasedLoad& load_;
  Random arrivals_;
  Random lengths_;
  std::vector<GroupRequest> requests_;
};

}  // namespace

absl::Status CheckPhasedLoad(const PhasedLoad& load) {
  absl::Status status;
  const auto ranged = [](int64_t tokens) { return static_cast<double>(tokens); };
  status.Update(Range("quiet rate", load.quiet_rate_min, load.quiet_rate_max));
  status.Update(Range("burst rate", load.burst_rate_min, load.burst_rate_max));
  status.Update(Range("prompt tokens", ranged(load.prompt_min), ranged(load.prompt_max)));
  status.Update(Range("output tokens", ranged(load.output_min), ranged(load.output_max)));
  status.Update(Share("priority share", load.priority_share));
  status.Update(Share("long share", load.long_share));
  if (load.long_share > 0) {
    status.Update(Range("long prompt", ranged(load.long_prompt), ranged(load.long_prompt)));
  }
  if (!(load.quiet_s >= 0 && load.burst_s >= 0 && load.quiet_s + load.burst_s > 0)) {
    status.Update(
        absl::InvalidArgumentError("phases: neither a quiet one nor a burst has a length"));
  }
  if (load.requests < 1 || load.requests > 10'000'000) {
    status.Update(absl::InvalidArgumentError(
        absl::StrCat("requests: ", load.requests, " is not in 1 to 10000000")));
  }
  return status;
}

std::vector<GroupRequest> GeneratePhasedLoad(const PhasedLoad& load) {
  return Generator(load).Generate();
}

}  // namespace skein::scheduler
