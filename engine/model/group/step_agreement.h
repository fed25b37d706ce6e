// The ranks of a group agree on a step by the tags of its messages (Communicator::Tag): no exchange
// is for that alone.
#pragma once

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/engine.h"

namespace skein::engine {

// Tags the messages of the step. `key_segment` is Ops::KeySegment; `results` are the checks' (a
// sequence that one rank alone refuses ends the step). When no sequence runs, the ranks meet here,
// so that one that runs some finds out; OK and results as they are.
absl::Status AgreeOnStep(const GroupPart& part, std::span<const SequenceStep> sequences,
                         const std::vector<SequenceResult>& results, const EngineSpec& spec,
                         int64_t key_segment);

// The last thing that every rank does of a step on a device whose work runs later: OK only when
// what the step's communicators brought has arrived, at all ranks (kernel_fabric.h).
absl::Status MeetAtStepEnd(const GroupPart& part);

// What an error of the step's communicators says about the step: calls that differ are
// FAILED_PRECONDITION.
absl::Status StepError(const absl::Status& status);

// Breaks the step's groups: no rank waits for one that has given up.
void AbortGroup(const GroupPart& part, const absl::Status& reason);

}  // namespace skein::engine
