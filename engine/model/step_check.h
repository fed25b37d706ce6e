// Checks a step's input as engine.h promises, before anything runs.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "engine/engine.h"

namespace skein::engine {

// INVALID_ARGUMENT names the sequence and field. `tokens_max` bounds the tokens of all sequences
// together; `layout` is what every sequence must be laid out in.
absl::Status CheckStep(std::span<const SequenceStep> sequences, const EngineSpec& spec,
                       int64_t tokens_max, KvLayout layout = {});

}  // namespace skein::engine
