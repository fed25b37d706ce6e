// Messages between a WorkerCore and its engine thread. At most two steps are in flight: one runs,
// and one may wait behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/request.h"
#include "scheduler/base/time.h"
#include "scheduler/kv/block_pool.h"
#include "scheduler/kv/deal.h"
#include "scheduler/vocabulary/group_id.h"
#include "scheduler/vocabulary/kv_layout.h"
#include "scheduler/worker/steps/step_mode.h"

namespace skein::scheduler {

// A sequence's part of a step that several instances run together: a piece of its prompt, dealt to
// the members by rank. Block ids are this instance's.
struct RingPart {
  Piece piece;
  int rank = 0;
  std::vector<std::string> comm_addresses;  // by rank
  std::vector<BlockId> history;             // of piece.history[rank], in the same order
  // By rank, empty when nothing moves: copied to / filled from that rank before each layer's
  // attention, in the order of global blocks.
  std::vector<std::vector<BlockId>> send;
  std::vector<std::vector<BlockId>> receive;
  std::vector<int64_t> history_tokens;  // by rank
  std::vector<bool> wants_logits;       // by rank: it samples, or scores its part of the prompt
  int64_t token_end = 0;                // prompt tokens that are computed, somewhere, after it
  TimeUs deadline_us = 0;               // of the whole step
  TimeUs estimated_us = 0;              // of the chunk, as PlanChunk says
  GroupId group;                        // of the chunk's members: the same for all its pieces
  GroupId moves_group;                  // a second one, for what moves
  // As PlanChunk says. Ranks [rank / tp * tp, … + tp) compute the dense part together, in a group
  // of their own, all of whose chunk have the same name.
  int tp = 1;
  GroupId tensor_group;
};

// One sequence of a step: tokens [position, position + count) of prompt ++ output ++ the token that
// the step in flight samples; with `ring` the tokens of its spans (`count` in all, 0 is fine),
// alone in its step.
struct StepSequence {
  RequestId id;
  Epoch epoch;
  SpecPtr spec;
  int64_t position = 0;
  int64_t count = 0;
  BlockTable blocks;  // covers at least position + count tokens; ring: those of its spans
  bool sample = false;
  int64_t token_index = 0;  // output index of the sampled token, when `sample`
  // Output tokens so far. The shell reads them when it executes the effect; later they grow.
  std::shared_ptr<const std::vector<int32_t>> output;
  std::shared_ptr<const RingPart> ring;
  KvLayout layout = {};  // of its KV, in all its steps

  int32_t TokenAt(int64_t place) const {
    const int64_t prompt_tokens = PromptTokens(*spec);
    return place < prompt_tokens ? spec->prompt[place] : (*output)[place - prompt_tokens];
  }
};

// Effect: run this batch on the engine, when the step in flight has ended, then answer StepDone
// with the same step number. If that one fails, with anything but INVALID_ARGUMENT, it may not run.
struct RunStep {
  uint64_t step = 0;
  std::vector<StepSequence> sequences;
  bool probe = false;  // of no request: it only shows that the engine answers (EngineWatch)
  // All ranks of the bound group run it, in this mode, until the deadline; never own.
  std::optional<StepMode> group = {};
  TimeUs deadline_us = 0;  // of a step of the group

  // It ends only when others run their part, and may end because of them.
  bool IsJoint() const {
    return group.has_value() || (!sequences.empty() && sequences.front().ring != nullptr);
  }
};

struct StepResult {
  int32_t token = -1;   // when `sample`; -1: no logits were used
  std::string payload;  // the token with its logprobs, serialised; empty: none were asked for
  std::string prompt_logprobs;  // of this chunk, serialised so that chunks can be concatenated
  // Not OK: the sequence failed, alone; its request ends with this. INVALID_ARGUMENT: it was
  // refused, or no token is left to sample. INTERNAL: its logits hold NaN or infinity.
  absl::Status status;
};

// Effect: a sequence that was in a step is in no further one; none of its steps is in flight.
struct ReleaseSequence {
  RequestId id;
  Epoch epoch;
};

// Effect: break the groups of the ring step, which then ends soon with UNAVAILABLE or
// CANCELLED. A step that has ended meanwhile: nothing.
struct AbortStep {
  uint64_t step = 0;
};

// Effect: this instance will not enter the group's step, so members waiting in it can stop. No step
// of the group is in flight here.
struct BreakGroup {
  GroupId group;
  int rank = 0;
  std::vector<std::string> comm_addresses;  // by rank
};

// Event: results[i] belongs to sequences[i], each with a status of its own; empty when `status`,
// that of the whole step, is not OK. INVALID_ARGUMENT: nothing was run, the batch's requests end
// with UNAVAILABLE. UNAVAILABLE, DEADLINE_EXCEEDED and CANCELLED of a step of several
// instances, and FAILED_PRECONDITION of one of a bound group: its group broke; the request of a
// ring step ends. Any other error: the engine is unusable; all requests end.
struct StepDone {
  uint64_t step = 0;
  absl::Status status;
  std::vector<StepResult> results;
  std::optional<RingPath> ring = {};  // a step that ran with other instances: how their bytes went
};

// The status of the whole step, which ran `sequences` sequences.
inline absl::Status StatusOf(const StepDone& done, size_t sequences) {
  if (!done.status.ok() || done.results.size() == sequences) return done.status;
  return absl::InternalError("the engine returned more or fewer results than sequences");
}

}  // namespace skein::scheduler
