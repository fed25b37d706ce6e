// Changes of raw logits that a request asks for, before temperature: penalties, bias, suppression.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampling/sampling_params.h"
#include "engine/sampling/seen_ids.h"

namespace skein::engine {

class LogitEditor {
 public:
  explicit LogitEditor(int vocab_size) : places_(vocab_size, 0) {}

  // Whether Apply would change anything.
  static bool Edits(const SamplingParams& params, uint64_t token_index);

  // In this order: the repetition penalty on every token of prompt or output (Keskar et al. 2019,
  // CTRL, section 4.1, with the sign rule of transformers), frequency and presence penalties on
  // tokens of the output, logit_bias, and -inf on suppressed ids while token_index < min_tokens.
  // All ids in [0, logits.size()). `seen`, if not null: of these parameters, prompt and output,
  // which are then not walked.
  void Apply(const SamplingParams& params, uint64_t token_index, std::span<const int32_t> prompt,
             std::span<const int32_t> output, const SeenIds* seen, std::span<float> logits);

 private:
  std::span<const SeenId> Walk(const SamplingParams& params, std::span<const int32_t> prompt,
                               std::span<const int32_t> output);
  SeenId& Of(int32_t id);

  std::vector<SeenId> walked_;
  std::vector<int32_t> places_;  // [vocab_size] index + 1 in walked_; all zero between calls
};

}  // namespace skein::engine
