#include "engine/sampling/logit_edits.h"

#include <limits>

namespace skein::engine {
namespace {

bool Suppresses(const SamplingParams& params, uint64_t token_index) {
  return params.min_tokens > 0 && token_index < static_cast<uint64_t>(params.min_tokens) &&
         !params.suppressed_until_min_tokens.empty();
}

}  // namespace

bool LogitEditor::Edits(const SamplingParams& params, uint64_t token_index) {
  return params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
         params.frequency_penalty != 0.0f || !params.logit_bias.empty() ||
         Suppresses(params, token_index);
}

// counts_ marks the ids already penalised, so that each is penalised once.
void LogitEditor::Repetition(float penalty, std::span<const int32_t> ids, std::span<float> logits) {
  for (const int32_t id : ids) {
    if (counts_[id]++ != 0) continue;
    logits[id] = logits[id] > 0 ? logits[id] / penalty : logits[id] * penalty;
  }
}

void LogitEditor::Apply(const SamplingParams& params, uint64_t token_index,
                        std::span<const int32_t> prompt, std::span<const int32_t> output,
                        std::span<float> logits) {
  if (params.repetition_penalty != 1.0f) {
    Repetition(params.repetition_penalty, prompt, logits);
    Repetition(params.repetition_penalty, output, logits);
    for (const int32_t id : prompt) counts_[id] = 0;
    for (const int32_t id : output) counts_[id] = 0;
  }
  if (params.frequency_penalty != 0.0f || params.presence_penalty != 0.0f) {
    for (const int32_t id : output) ++counts_[id];
    for (const int32_t id : output) {
      if (counts_[id] == 0) continue;  // done already
      logits[id] -= params.frequency_penalty * static_cast<float>(counts_[id]);
      logits[id] -= params.presence_penalty;
      counts_[id] = 0;
    }
  }
  for (const auto& [id, bias] : params.logit_bias) logits[id] += bias;
  if (Suppresses(params, token_index)) {
    for (const int32_t id : params.suppressed_until_min_tokens) {
      logits[id] = -std::numeric_limits<float>::infinity();
    }
  }
}

}  // namespace skein::engine
