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
  return SeenIds::Penalises(params) || !params.logit_bias.empty() ||
         Suppresses(params, token_index);
}

SeenId& LogitEditor::Of(int32_t id) {
  int32_t& place = places_[static_cast<size_t>(id)];
  if (place == 0) {
    walked_.push_back({.id = id});
    place = static_cast<int32_t>(walked_.size());
  }
  return walked_[static_cast<size_t>(place) - 1];
}

// What SeenIds keeps, by an array of the vocabulary in place of a map for each sequence.
std::span<const SeenId> LogitEditor::Walk(const SamplingParams& params,
                                          std::span<const int32_t> prompt,
                                          std::span<const int32_t> output) {
  walked_.clear();
  if (params.repetition_penalty != 1.0f) {
    for (const int32_t id : prompt) Of(id);
  }
  for (const int32_t id : output) ++Of(id).output_count;
  for (const SeenId& seen : walked_) places_[static_cast<size_t>(seen.id)] = 0;
  return walked_;
}

void LogitEditor::Apply(const SamplingParams& params, uint64_t token_index,
                        std::span<const int32_t> prompt, std::span<const int32_t> output,
                        const SeenIds* seen, std::span<float> logits) {
  if (SeenIds::Penalises(params)) {
    for (const SeenId& one : seen != nullptr ? seen->ids() : Walk(params, prompt, output)) {
      float& logit = logits[one.id];
      if (params.repetition_penalty != 1.0f) {
        logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
      }
      if (one.output_count == 0 || !SeenIds::PenalisesOutput(params)) continue;
      logit -= params.frequency_penalty * static_cast<float>(one.output_count);
      logit -= params.presence_penalty;
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
