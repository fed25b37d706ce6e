// Tokens with weights, the most likely first: finds where their weights, added up in that order,
// reach a target. Only tokens about as likely as the one found are sorted: tokens are counted in
// bins of like weight, and bins are in order.
//
// The sums' order follows from the row alone, so the same row gives the same token anywhere.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampling/kernels/sampling_kernels.h"

namespace skein::engine {

class WeightRanking {
 public:
  // `ids` grow; weights[id] > 0 are those of logits[id] by `scale`. All stay the caller's,
  // unchanged until the next Rank. Equal logits are ordered by smaller id.
  void Rank(std::span<const float> logits, std::span<const float> weights,
            std::span<const int32_t> ids, const WeightScale& scale);

  struct Place {
    int32_t id = 0;
    double reached = 0.0;  // the weights of all tokens up to and with this one
  };
  // The first token at which the sum is `target` or more; the last of all when none is. REQUIRES:
  // ids were not empty.
  Place Reach(double target);

 private:
  void SortBin(size_t bin);

  std::span<const float> logits_, weights_;
  std::span<const int32_t> ids_;
  std::vector<uint16_t> bin_of_;  // of ids_
  std::vector<double> sums_;      // by bin
  std::vector<int32_t> sorted_;   // of one bin
};

}  // namespace skein::engine
