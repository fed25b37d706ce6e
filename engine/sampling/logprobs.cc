#include "engine/sampling/logprobs.h"

#include <algorithm>
#include <vector>

#include "engine/sampling/sample_errors.h"
#include "engine/sampling/top_tokens.h"

namespace skein::engine {

absl::StatusOr<SampledToken> LogprobsOf(std::span<const float> logits, int32_t token,
                                        int top_logprobs) {
  std::vector<float> maxima(Stretches(logits.size()));
  const LogitScan scan = ScanLogits(logits, maxima);
  if (!scan.usable) return BadLogits();
  return LogprobsOf({logits, maxima, scan}, token, top_logprobs);
}

SampledToken LogprobsOf(const ScannedLogits& row, int32_t token, int top_logprobs) {
  const std::span<const float> logits = row.logits;
  const double normaliser = LogSumExp(logits, row.scan.max);
  const auto logprob = [&](int32_t id) { return static_cast<float>(logits[id] - normaliser); };
  SampledToken result{token, logprob(token), {}};
  if (top_logprobs <= 0) return result;
  std::vector<int32_t> best;
  TopTokens().Find(logits, row.maxima, std::min<size_t>(top_logprobs, logits.size()), &best);
  for (const int32_t id : best) result.top.push_back({id, logprob(id)});
  return result;
}

}  // namespace skein::engine
