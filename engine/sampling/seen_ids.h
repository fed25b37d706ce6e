// SeenIds: the ids that penalties fall on, each once, kept with a sequence so that a step costs its
// new tokens and these ids, not a walk over prompt and output. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/sampling/sampling_params.h"

namespace skein::engine {

struct SeenId {
  int32_t id = 0;
  int32_t output_count = 0;  // times in the output

  bool operator==(const SeenId&) const = default;
};

class SeenIds {
 public:
  // Without a penalty in `params` nothing is kept; the prompt counts for the repetition penalty
  // only.
  SeenIds(const SamplingParams& params, std::span<const int32_t> prompt)
      : keeps_(Penalises(params)) {
    if (params.repetition_penalty == 1.0f) return;
    for (const int32_t id : prompt) Of(id);
  }

  // The output's next token.
  void Add(int32_t id) {
    if (keeps_) ++Of(id).output_count;
  }

  // In the order in which they came first.
  std::span<const SeenId> ids() const { return ids_; }

  static bool PenalisesOutput(const SamplingParams& params) {
    return params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f;
  }
  static bool Penalises(const SamplingParams& params) {
    return params.repetition_penalty != 1.0f || PenalisesOutput(params);
  }

 private:
  SeenId& Of(int32_t id) {
    const auto [place, is_new] = places_.try_emplace(id, ids_.size());
    if (is_new) ids_.push_back({.id = id});
    return ids_[place->second];
  }

  bool keeps_;
  std::vector<SeenId> ids_;
  absl::flat_hash_map<int32_t, size_t> places_;  // in ids_, by id
};

}  // namespace skein::engine
