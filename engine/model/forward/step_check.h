// Checks a step's input as engine.h promises, before anything runs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/engine.h"

namespace skein::engine {

// Checks each sequence by itself: (*results)[i], otherwise empty, gets its status, where
// INVALID_ARGUMENT names the field. INVALID_ARGUMENT is returned for what concerns the whole step:
// no sequences, a ring one, or more than `tokens_max` tokens together. What is returned depends
// on `tokens` and `ring` alone, so that ranks that are given the same sequences agree on it.
// `layout` is what every sequence must be laid out in.
absl::Status CheckStep(std::span<const SequenceStep> sequences, const EngineSpec& spec,
                       int64_t tokens_max, KvLayout layout, std::vector<SequenceResult>* results);

// Whether any sequence passed its check.
bool AnyRuns(std::span<const SequenceResult> results);

// The parts of one sequence that do not depend on how it runs: `before` tokens and then `tokens` in
// its block table, token ids, sampling. INVALID_ARGUMENT names the field.
absl::Status CheckContents(const SequenceStep& sequence, const EngineSpec& spec, int64_t before);

}  // namespace skein::engine
