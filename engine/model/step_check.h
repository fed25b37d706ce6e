// Checks a step's input as engine.h promises, before anything runs.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "engine/engine.h"

namespace skein::engine {

// INVALID_ARGUMENT names the sequence and field. `tokens_max` bounds the tokens of all sequences
// together; `layout` is what every sequence must be laid out in. A spanning sequence is refused.
absl::Status CheckStep(std::span<const SequenceStep> sequences, const EngineSpec& spec,
                       int64_t tokens_max, KvLayout layout = {});

// The parts of one sequence that do not depend on how it runs: `before` tokens and then `tokens` in
// its block table, token ids, sampling. INVALID_ARGUMENT names the field.
absl::Status CheckContents(const SequenceStep& sequence, const EngineSpec& spec, int64_t before);

}  // namespace skein::engine
