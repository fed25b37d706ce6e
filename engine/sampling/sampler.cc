#include "engine/sampling/sampler.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "engine/sampling/logprobs.h"
#include "engine/sampling/philox.h"
#include "engine/sampling/sample_errors.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr float kGreedyBelow = 1e-5f;  // a temperature this low is greedy, as in vLLM
constexpr size_t kFirstSorted = 128;   // top_p sorts this many, then four times as many, …

// Most likely first; equal logits by smaller id.
struct MoreLikely {
  std::span<const float> logits;
  bool operator()(int32_t a, int32_t b) const {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  }
};

}  // namespace

Sampler::Sampler(int vocab_size)
    : editor_(vocab_size),
      edited_(vocab_size),
      maxima_(Stretches(static_cast<size_t>(vocab_size))),
      weights_(vocab_size) {}

absl::StatusOr<SampledToken> Sampler::Sample(std::span<const float> logits,
                                             const SamplingParams& params, uint64_t token_index,
                                             std::span<const int32_t> prompt,
                                             std::span<const int32_t> output, const SeenIds* seen) {
  SKEIN_CHECK(logits.size() == weights_.size());
  cost_ = {};
  LogitScan scan = ScanLogits(logits, maxima_);
  if (!scan.usable) return BadLogits();
  std::span<const float> edited = logits;
  if (LogitEditor::Edits(params, token_index)) {
    std::copy(logits.begin(), logits.end(), edited_.begin());
    editor_.Apply(params, token_index, prompt, output, seen, edited_);
    edited = edited_;
    scan = ScanLogits(edited, maxima_);
    if (!scan.usable) return NoTokenLeft();
  }
  const absl::StatusOr<int32_t> token =
      Choose(edited, scan, params, UniformSample(params.seed, token_index));
  if (!token.ok()) return token.status();
  if (params.top_logprobs < 0) return SampledToken{*token, 0.0f, {}};
  return LogprobsOf(logits, *token, params.top_logprobs);
}

absl::StatusOr<int32_t> Sampler::Choose(std::span<const float> logits, const LogitScan& scan,
                                        const SamplingParams& params, double uniform) {
  if (params.temperature < kGreedyBelow || params.top_k == 1) {
    return FirstIndexOf(logits, maxima_, scan.max);
  }
  candidates_.clear();
  double total = 0.0;
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < logits.size()) {
    KeepTopK(logits, params.top_k);
    for (const int32_t id : candidates_) {
      weights_[id] = ExpWeight(logits[id], scan.max, params.temperature);
      total += weights_[id];
    }
    cost_.weighed = params.top_k;
  } else {
    total = ExpWeights(logits, scan.max, params.temperature, weights_);
    cost_.weighed = static_cast<int64_t>(logits.size());
    if (params.top_p >= 1.0f) return SampleFromAll(uniform, params.min_p, total);
  }
  if (params.top_p < 1.0f) KeepTopP(logits, params.top_p, total);
  return SampleFromCandidates(uniform, params.min_p);
}

// As many stretches as tokens are kept have a maximum of `least` or more, so all that is kept is at
// least that, and stretches below it are not looked at. The heap's front is the least likely of the
// best so far.
void Sampler::KeepTopK(std::span<const float> logits, int top_k) {
  const MoreLikely more_likely{logits};
  const auto kept = static_cast<size_t>(top_k);
  float least = -std::numeric_limits<float>::infinity();
  if (kept <= maxima_.size()) {
    largest_ = maxima_;
    const auto kth = largest_.begin() + (top_k - 1);
    std::nth_element(largest_.begin(), kth, largest_.end(), std::greater<>());
    least = *kth;
  }
  for (size_t s = 0; s < maxima_.size(); ++s) {
    if (maxima_[s] < least) continue;
    const size_t begin = s * kStretchLogits;
    const size_t end = std::min(begin + kStretchLogits, logits.size());
    cost_.looked_at += static_cast<int64_t>(end - begin);
    for (size_t i = begin; i < end; ++i) {
      const auto id = static_cast<int32_t>(i);
      if (candidates_.size() < kept) {
        candidates_.push_back(id);
        std::push_heap(candidates_.begin(), candidates_.end(), more_likely);
      } else if (logits[id] > logits[candidates_.front()]) {  // an equal one has a larger id
        std::pop_heap(candidates_.begin(), candidates_.end(), more_likely);
        candidates_.back() = id;
        std::push_heap(candidates_.begin(), candidates_.end(), more_likely);
      }
    }
  }
  std::sort_heap(candidates_.begin(), candidates_.end(), more_likely);
}

// `total`: the weight of the candidates, or of all tokens where there are none.
void Sampler::KeepTopP(std::span<const float> logits, float top_p, double total) {
  size_t sorted = candidates_.size();
  if (candidates_.empty()) {
    // All tokens less likely than this together weigh less than 1 - top_p: none can be needed.
    const double least = (1.0 - top_p) * total / static_cast<double>(weights_.size());
    for (size_t id = 0; id < weights_.size(); ++id) {
      if (weights_[id] >= least) candidates_.push_back(static_cast<int32_t>(id));
    }
  }
  double reached = 0.0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (i == sorted) {
      sorted = std::min(candidates_.size(), std::max(kFirstSorted, sorted * 4));
      std::partial_sort(candidates_.begin() + static_cast<std::ptrdiff_t>(i),
                        candidates_.begin() + static_cast<std::ptrdiff_t>(sorted),
                        candidates_.end(), MoreLikely{logits});
    }
    reached += weights_[candidates_[i]];
    if (reached >= top_p * total) {
      candidates_.resize(i + 1);
      return;
    }
  }
}

int32_t Sampler::SampleFromAll(double uniform, float weight_min, double total) const {
  if (weight_min > 0.0f) {
    total = 0.0;
    for (const float weight : weights_) total += weight >= weight_min ? weight : 0.0f;
  }
  const double target = uniform * total;
  double reached = 0.0;
  int32_t last = 0;
  for (size_t id = 0; id < weights_.size(); ++id) {
    if (weights_[id] <= 0.0f || weights_[id] < weight_min) continue;
    last = static_cast<int32_t>(id);
    reached += weights_[id];
    if (reached > target) break;
  }
  return last;
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

}  // namespace skein::engine
