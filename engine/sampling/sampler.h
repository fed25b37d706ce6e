// Sampler: samples one token from a row of logits. Deterministic: the same logits, parameters,
// token index and history give the same token in any process (the generator is philox.h, keyed by
// params.seed, counted by the token's index; equal logits are ordered by smaller id).
//
// Order: penalties, logit_bias and min_tokens (logit_edits.h), then greedy choice when temperature
// is 0 (below 1e-5), else temperature, top_k, top_p, min_p, sampling. top_p keeps the fewest tokens
// whose probability, renormalised after top_k, reaches top_p (Holtzman et al. 2020); min_p keeps
// tokens at least min_p times as likely as the most likely.
//
// Every call reads the logits once. Beyond that greedy choice and top_k look at few stretches of
// them, and compute the weights of what top_k keeps only. Sampling from all and top_p compute all
// weights once, and add them up by stretches; then they look at one stretch, or at tokens about as
// likely as the one that is sampled and the last that top_p keeps.
//
// Owned and called by one thread; buffers are of the vocabulary's size and reused.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/sampling/logit_edits.h"
#include "engine/sampling/logprobs.h"
#include "engine/sampling/sampling_params.h"
#include "engine/sampling/softmax.h"
#include "engine/sampling/top_tokens.h"
#include "engine/sampling/weight_ranking.h"

namespace skein::engine {

// OK when every parameter is in its range and every id in [0, vocab_size). INVALID_ARGUMENT names
// the field and value.
absl::Status CheckSamplingParams(const SamplingParams& params, int vocab_size);

// INVALID_ARGUMENT when suppressed ids and a logit_bias of -inf rule out every id at index 0,
// whatever the logits. REQUIRES: CheckSamplingParams is OK.
absl::Status CheckTokenLeft(const SamplingParams& params, int vocab_size);

class Sampler {
 public:
  explicit Sampler(int vocab_size);

  // logits [vocab_size], raw. REQUIRES: CheckSamplingParams is OK; ids of prompt and output are in
  // the vocabulary. INTERNAL when the logits hold NaN or +inf; INVALID_ARGUMENT when the edits
  // leave no token to sample. `seen` as in LogitEditor::Apply.
  absl::StatusOr<SampledToken> Sample(std::span<const float> logits, const SamplingParams& params,
                                      uint64_t token_index, std::span<const int32_t> prompt,
                                      std::span<const int32_t> output,
                                      const SeenIds* seen = nullptr);

  // The work of the last Sample after its one scan of all logits.
  struct Cost {
    int64_t looked_at = 0;  // logits that top_k compared
    int64_t weighed = 0;    // weights that were computed
  };
  const Cost& cost() const { return cost_; }

 private:
  int32_t Choose(const ScannedLogits& row, const SamplingParams& params, double uniform);
  int32_t SampleFromTopK(const ScannedLogits& row, const SamplingParams& params, double uniform);
  void KeepTopP(float top_p, double total);
  int32_t SampleFromCandidates(double uniform, float weight_min) const;
  int32_t SampleFromTopP(const ScannedLogits& row, const SamplingParams& params, double uniform);
  void Collect(const ScannedLogits& row, const WeightScale& scale, double least);
  int32_t SampleFromAll(const ScannedLogits& row, const SamplingParams& params, double uniform);

  LogitEditor editor_;
  std::vector<float> edited_;                  // [vocab_size]
  std::vector<float> maxima_, edited_maxima_;  // of the stretches of raw and edited logits
  std::vector<double> sums_;                   // of the stretches' weights
  std::vector<float> weights_;       // [vocab_size] probabilities relative to the most likely: of
                                     // all, of top_k's candidates, or of one stretch at the front
  std::vector<int32_t> candidates_;  // what top_k and top_p choose from
  TopTokens top_tokens_;
  WeightRanking ranking_;
  Cost cost_;
};

}  // namespace skein::engine
