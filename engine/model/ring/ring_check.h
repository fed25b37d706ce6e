// Checks the ring part of a step's input as engine.h promises, before anything runs.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "absl/status/status.h"
#include "engine/engine.h"

namespace skein::engine {

// The largest RingStep::tp with which an engine shares its weights. Reproducible sums are cut for
// as many.
inline constexpr int kRingTpMax = 8;
// The most ranks of a step with tp > 1.
inline constexpr int kSharedRanksMax = 512;

// What an engine runs of ring steps.
struct RingLimits {
  int64_t tokens_max = std::numeric_limits<int64_t>::max();  // of this rank
  bool named_histories = false;                              // it needs RankShare::history
};

// `sequence.ring` is set, and it is alone in its step. INVALID_ARGUMENT names the field. What
// only all ranks together can tell (that their shares are the same, that what one sends another
// receives) is left to the step.
absl::Status CheckRingStep(const SequenceStep& sequence, const EngineSpec& spec,
                           const RingLimits& limits);

// This rank refuses its part: the step ends with UNAVAILABLE at the others.
void AbortRefused(const RingStep& step, const absl::Status& refusal);

// Breaks the communicators of all ring sequences: they will not be run, and no other rank shall
// wait for this one.
void AbortRingStep(std::span<const SequenceStep> sequences, const absl::Status& reason);

// The last thing that every rank does of a step, when no other thread uses its communicators: OK
// only after every rank has come to it, on all. Errors are the communicators'.
absl::Status MeetAtEnd(const RingStep& step);

}  // namespace skein::engine
