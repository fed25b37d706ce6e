// The requests of an offline job: all are there when it begins.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace skein::scheduler {

struct OfflineRequest {
  int64_t prompt = 0;  // tokens
  int64_t output = 0;
};

struct OfflineLoad {
  int64_t requests = 2000;
  double prompt_mean = 1024;
  double output_mean = 3072;
  // Of the logarithm of an output's length, and half of that of a prompt's (log-normal); 0: all
  // alike. No length is above kLongest times its mean.
  double sigma = 0.7;
  uint64_t seed = 1;

  static constexpr double kLongest = 8;
};

// INVALID_ARGUMENT names the field and its value.
absl::Status CheckOfflineLoad(const OfflineLoad& load);
std::vector<OfflineRequest> GenerateOfflineLoad(const OfflineLoad& load);

}  // namespace skein::scheduler
