// DecodeTimes: how long a decode step takes, alone or in a bound group. Emulated workers take this
// time (engine/emulated), and simulated ones too (scheduler/simulator), so that the two have the
// same inputs.
//
// A rank of a group of sp * tp ranks runs a part of 1 / sp of the step's sequences, padded to whole
// ones, with views of 1 / tp of the weights (Shift Parallelism, section 3). A profile says how many
// times as fast `tp` ranks are as one, with what their collectives take; sp moves no weights, and
// what its collectives take is not counted.
#pragma once

#include <cstdint>
#include <map>

namespace skein {

struct DecodeTimes {
  double step_s = 0;              // of each step
  double sequence_s = 0;          // for each sequence in it
  double kv_token_s = 0;          // for each token that these have in the KV
  std::map<int, double> gains{};  // above 0, by tp; of one that is not here: 1

  // REQUIRES: sp, tp >= 1; sequences >= 1, with `kv_tokens` in all.
  double Seconds(int sp, int tp, int64_t sequences, int64_t kv_tokens) const {
    const auto gain = gains.find(tp);
    const auto mine = static_cast<double>((sequences + sp - 1) / sp);
    const double whole_s =
        step_s + sequence_s * mine + kv_token_s * static_cast<double>(kv_tokens) / sp;
    return gain == gains.end() ? whole_s : whole_s / gain->second;
  }
};

}  // namespace skein
