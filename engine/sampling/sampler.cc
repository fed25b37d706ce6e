#include "engine/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/sampling/logprobs.h"
#include "engine/sampling/philox.h"
#include "engine/sampling/sample_errors.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr float kGreedyBelow = 1e-5f;  // a temperature this low is greedy, as in vLLM
constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

Sampler::Sampler(int vocab_size)
    : editor_(vocab_size),
      edited_(vocab_size),
      maxima_(Stretches(static_cast<size_t>(vocab_size))),
      edited_maxima_(maxima_.size()),
      sums_(maxima_.size()),
      weights_(vocab_size) {}

absl::StatusOr<SampledToken> Sampler::Sample(std::span<const float> logits,
                                             const SamplingParams& params, uint64_t token_index,
                                             std::span<const int32_t> prompt,
                                             std::span<const int32_t> output, const SeenIds* seen) {
  SKEIN_CHECK(logits.size() == weights_.size());
  cost_ = {};
  const ScannedLogits raw = {logits, maxima_, ScanLogits(logits, maxima_)};
  if (!raw.scan.usable) return BadLogits();
  ScannedLogits edited = raw;
  if (LogitEditor::Edits(params, token_index)) {
    std::copy(logits.begin(), logits.end(), edited_.begin());
    editor_.Apply(params, token_index, prompt, output, seen, edited_);
    edited = {edited_, edited_maxima_, ScanLogits(edited_, edited_maxima_)};
    if (!edited.scan.usable) return NoTokenLeft();
  }
  const int32_t token = Choose(edited, params, UniformSample(params.seed, token_index));
  if (params.top_logprobs < 0) return SampledToken{token, 0.0f, {}};
  return LogprobsOf(raw, token, params.top_logprobs);
}

int32_t Sampler::Choose(const ScannedLogits& row, const SamplingParams& params, double uniform) {
  if (params.temperature < kGreedyBelow || params.top_k == 1) {
    return FirstIndexOf(row.logits, row.maxima, row.scan.max);
  }
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < row.logits.size()) {
    return SampleFromTopK(row, params, uniform);
  }
  cost_.weighed = static_cast<int64_t>(row.logits.size());
  return params.top_p < 1.0f ? SampleFromTopP(row, params, uniform)
                             : SampleFromAll(row, params, uniform);
}

int32_t Sampler::SampleFromTopK(const ScannedLogits& row, const SamplingParams& params,
                                double uniform) {
  const auto kept = static_cast<size_t>(params.top_k);
  cost_.looked_at = top_tokens_.Find(row.logits, row.maxima, kept, &candidates_);
  cost_.weighed = params.top_k;
  double total = 0.0;
  for (const int32_t id : candidates_) {
    weights_[id] = ExpWeight(row.logits[id], row.scan.max, params.temperature);
    total += weights_[id];
  }
  if (params.top_p < 1.0f) KeepTopP(params.top_p, total);
  return SampleFromCandidates(uniform, params.min_p);
}

// Of candidates in their order, which together weigh `total`.
void Sampler::KeepTopP(float top_p, double total) {
  double reached = 0.0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    reached += weights_[candidates_[i]];
    if (reached >= top_p * total) {
      candidates_.resize(i + 1);
      return;
    }
  }
}

int32_t Sampler::SampleFromCandidates(double uniform, float weight_min) const {
  double total = 0.0;
  for (const int32_t id : candidates_) total += weights_[id] >= weight_min ? weights_[id] : 0.0f;
  const double target = uniform * total;
  double reached = 0.0;
  int32_t last = candidates_.front();
  for (const int32_t id : candidates_) {
    if (weights_[id] <= 0.0f || weights_[id] < weight_min) break;  // most likely first
    last = id;
    reached += weights_[id];
    if (reached > target) break;
  }
  return last;
}

int32_t Sampler::SampleFromTopP(const ScannedLogits& row, const SamplingParams& params,
                                double uniform) {
  const WeightScale scale = {row.scan.max, params.temperature};
  const double total = WeighLogits(row.logits, scale, sums_, weights_);
  // All tokens less likely than this together weigh less than 1 - top_p: none can be needed.
  Collect(row, scale, (1.0 - params.top_p) * total / static_cast<double>(weights_.size()));
  ranking_.Rank(row.logits, weights_, candidates_, scale);
  WeightRanking::Place last = ranking_.Reach(params.top_p * total);
  if (weights_[last.id] < params.min_p) {  // which keeps less than top_p does
    std::erase_if(candidates_, [&](int32_t id) { return weights_[id] < params.min_p; });
    ranking_.Rank(row.logits, weights_, candidates_, scale);
    last = ranking_.Reach(kInfinity);
  }
  const WeightRanking::Place chosen =
      ranking_.Reach(std::nextafter(uniform * last.reached, kInfinity));
  return chosen.reached > last.reached ? last.id : chosen.id;
}

// Sets candidates_ to the tokens that weigh at least `least`.
void Sampler::Collect(const ScannedLogits& row, const WeightScale& scale, double least) {
  constexpr double kRounding = 1.0 + 1e-5;  // more than the weights' errors
  candidates_.resize(weights_.size());
  size_t count = 0;
  for (size_t s = 0; s < row.maxima.size(); ++s) {
    if (ExpWeight(row.maxima[s], scale.max, scale.temperature) * kRounding < least) continue;
    const size_t begin = s * kStretchLogits, size = StretchOf(row.logits, s).size();
    for (size_t i = begin; i < begin + size; ++i) {
      candidates_[count] = static_cast<int32_t>(i);
      count += weights_[i] >= least ? 1 : 0;  // without a branch: which it is cannot be predicted
    }
  }
  candidates_.resize(count);
}

// Tokens in the order of their ids. Only the stretch in which the chosen one is is weighed again.
int32_t Sampler::SampleFromAll(const ScannedLogits& row, const SamplingParams& params,
                               double uniform) {
  const WeightScale scale = {row.scan.max, params.temperature, params.min_p};
  const double target = uniform * WeighLogits(row.logits, scale, sums_);
  size_t found = 0;
  double before = 0.0, with_found = 0.0;
  for (size_t s = 0; s < sums_.size() && with_found <= target; ++s) {
    if (sums_[s] == 0.0) continue;
    found = s;
    before = with_found;
    with_found += sums_[s];
  }
  double sum = 0.0;
  const std::span<const float> stretch = StretchOf(row.logits, found);
  const std::span<float> weights = std::span(weights_).first(stretch.size());
  WeighLogits(stretch, scale, {&sum, 1}, weights);
  double reached = before;
  size_t last = 0;
  for (size_t i = 0; i < weights.size() && reached <= target; ++i) {
    if (weights[i] == 0.0f) continue;
    last = i;
    reached += weights[i];
  }
  return static_cast<int32_t>(found * kStretchLogits + last);
}

}  // namespace skein::engine
