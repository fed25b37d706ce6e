// The most likely tokens of a row of logits, without a look at all of it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace skein::engine {

// Most likely first; equal logits by smaller id.
struct MoreLikely {
  std::span<const float> logits;
  bool operator()(int32_t a, int32_t b) const {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  }
};

class TopTokens {
 public:
  // Sets *tokens to the `count` most likely, in order. REQUIRES: usable logits (softmax.h), of
  // which `maxima` are the stretches'; 0 < count ≤ logits.size(). Returns how many logits were
  // compared.
  int64_t Find(std::span<const float> logits, std::span<const float> maxima, size_t count,
               std::vector<int32_t>* tokens);

 private:
  std::vector<float> largest_;  // of maxima
};

}  // namespace skein::engine
