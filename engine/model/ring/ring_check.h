// Checks the ring part of a step's input as engine.h promises, before anything runs.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "engine/engine.h"

namespace skein::engine {

// `sequence.ring` is set, and it is alone in its step. INVALID_ARGUMENT names the field. What
// only all ranks together can tell (that their shares are the same, that what one sends another
// receives) is left to the step.
// `named_histories`: the engine needs RankShare::history.
absl::Status CheckRingStep(const SequenceStep& sequence, const EngineSpec& spec, int64_t tokens_max,
                           bool named_histories = false);

// This rank refuses its part: the step ends with UNAVAILABLE at the others.
void AbortRefused(const RingStep& step, const absl::Status& refusal);

// Breaks the communicators of all ring sequences: they will not be run, and no other rank shall
// wait for this one.
void AbortRingStep(std::span<const SequenceStep> sequences, const absl::Status& reason);

// The last thing that every rank does of a step, when no other thread uses its communicators: OK
// only after every rank has come to it, on both. Errors are the communicators'.
absl::Status MeetAtEnd(const RingStep& step);

}  // namespace skein::engine
