#include "engine/sampling/logprobs.h"

#include <algorithm>

#include "engine/sampling/sample_errors.h"
#include "engine/sampling/softmax.h"

namespace skein::engine {
namespace {

// The `count` largest logits, largest first, ties by smaller id: one scan that keeps the best.
std::vector<TokenLogprob> LargestLogits(std::span<const float> logits, size_t count) {
  std::vector<TokenLogprob> best;
  best.reserve(count + 1);
  for (size_t i = 0; i < logits.size(); ++i) {
    const float logit = logits[i];
    if (best.size() == count && !(logit > best.back().logprob)) continue;
    const auto place =
        std::upper_bound(best.begin(), best.end(), logit,
                         [](float value, const TokenLogprob& b) { return value > b.logprob; });
    best.insert(place, {static_cast<int32_t>(i), logit});
    if (best.size() > count) best.pop_back();
  }
  return best;
}

}  // namespace

absl::StatusOr<SampledToken> LogprobsOf(std::span<const float> logits, int32_t token,
                                        int top_logprobs) {
  const LogitScan scan = ScanLogits(logits);
  if (!scan.usable) return BadLogits();
  const double normaliser = LogSumExp(logits, scan.max);
  const auto logprob = [&](float logit) { return static_cast<float>(logit - normaliser); };
  SampledToken result{token, logprob(logits[token]), {}};
  if (top_logprobs > 0) {
    result.top = LargestLogits(logits, std::min<size_t>(top_logprobs, logits.size()));
    for (TokenLogprob& entry : result.top) entry.logprob = logprob(entry.logprob);
  }
  return result;
}

}  // namespace skein::engine
