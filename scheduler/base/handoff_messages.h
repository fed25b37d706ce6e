// Messages of the handoff (messages.h): calls of a prefill-worker at the decode-worker that gets
// the KV of its request.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"
#include "scheduler/kv/handoff_shape.h"
#include "scheduler/vocabulary/staged_block.h"

namespace skein::scheduler {

// Opens a transfer. The first one for an announced request allocates blocks for its prompt and
// output. Idempotent for one (id, epoch, writer). It may overtake the announcement, which comes on
// another connection; the answer then waits for the announcement, within a bound.
//
// RESOURCE_EXHAUSTED: no blocks, or the instance drains; nothing was taken, and another instance
// may have room. UNAVAILABLE: not announced in time. INVALID_ARGUMENT: it can never fit.
// FAILED_PRECONDITION: stale epoch, a different shape (the field is named), or a writer that was
// not announced.
struct OpenTransferRequest {
  RequestId id;
  Epoch epoch;
  InstanceId prefill;
  Incarnation incarnation;  // of the prefill worker
  HandoffShape shape;
  // It showed no permit where one is asked for (Placed::permit). Only a writer that is excused
  // (AnnounceOf::excused) opens a transfer so: PERMISSION_DENIED.
  bool unpermitted = false;
};
// Where one rank of a bound group keeps a prompt's KV.
struct TransferTarget {
  std::vector<BlockId> blocks;  // blocks of the prompt, in token order
  std::string memory;           // the transport's description of that rank's regions
  bool operator==(const TransferTarget&) const = default;
};
struct OpenTransferReply {
  absl::Status status;
  std::vector<BlockId> blocks;  // blocks of the prompt, in token order
  KvLayout layout = {};         // layout to use when writing `blocks`
  std::string memory;           // the transport's description of the decode side's regions
  TimeUs lease_us = 0;          // the writer must stop this long after it SENT the call
  // > 0: `blocks` is empty. The writer writes to a staging buffer with this many slots, which it
  // gets with AcquireStagingBuffer.
  int32_t staging_slots = 0;
  // The request was placed in a bound group (AnnounceOf::formation): ranks 1, 2, … of `layout`.
  // `blocks` and `memory` are those of rank 0. Every rank gets its heads of every block.
  std::vector<TransferTarget> others = {};
};

struct RenewRequest {
  RequestId id;
  Epoch epoch;
  InstanceId prefill = {};  // the writer, as in OpenTransferRequest
};
struct RenewReply {
  absl::Status status;  // on any other error than UNAVAILABLE and DEADLINE_EXCEEDED, stop writing
  TimeUs lease_us = 0;
};

// A writer numbers its acquisitions of staging buffers: `ask` grows with each; repeating a call is
// safe. Answered when the request gets a buffer, or after a while with RESOURCE_EXHAUSTED: call
// again. The writer has the buffer, under its transfer's lease, until its ReleaseStagingBuffer,
// Commit or Abort.
struct AcquireStagingBufferRequest {
  RequestId id;
  Epoch epoch;
  InstanceId prefill;  // the writer, as in OpenTransferRequest
  uint64_t ask = 0;
};
struct AcquireStagingBufferReply {
  absl::Status status;
  std::string memory;  // the transport's description of the buffer
};

// These blocks are complete in the writer's staging buffer. OK: they were copied out and their
// slots may be reused. Parts are numbered from 1, one at a time; a part taken before is answered OK
// without being read. UNAVAILABLE: it is still being copied, call again.
struct TakePartRequest {
  RequestId id;
  Epoch epoch;
  InstanceId prefill;
  uint64_t part = 0;
  std::vector<StagedBlock> blocks;
  KvLayout layout = {};  // layout of the blocks; refused if it differs from the decode side's
};
struct TakePartReply {
  absl::Status status;
};

// The writer sends nothing more under `ask` and earlier acquisitions. The request keeps the buffer
// for its next acquisition or another of its writers. Idempotent, always answered OK.
struct ReleaseStagingBufferRequest {
  RequestId id;
  Epoch epoch;
  InstanceId prefill;
  uint64_t ask = 0;
};
struct ReleaseStagingBufferReply {
  absl::Status status;
};

// How long a prompt took at its prefill instance, by that instance's clock. For an SP plan: the
// lead's durations, with the longest handoff.
struct PrefillTimes {
  TimeUs queue_us = 0;    // from Assign to the start of its first step
  TimeUs prefill_us = 0;  // from there to the end of its last step
  TimeUs handoff_us = 0;  // from there until the last KV was written at the decode side
  bool operator==(const PrefillTimes&) const = default;
};

// All puts of this writer have completed; it no longer accesses the blocks. Idempotent. The
// sequence is admitted when all its writers' bytes sum to the prompt's and the first token is
// known.
struct CommitRequest {
  RequestId id;
  Epoch epoch;
  std::vector<int64_t> bytes_per_layer;
  bool has_token = true;        // false when max_tokens is 0, or another writer has it
  int32_t token = 0;            // output token 0
  std::string payload;          // the sampled token with its logprobs; opaque to the cores
  std::string prompt_logprobs;  // the chunks' payloads, concatenated
  InstanceId prefill = {};      // the writer, as in OpenTransferRequest
  PrefillTimes times = {};      // measured by the writer
};
struct CommitReply {
  absl::Status status;
};

// The writer has stopped and will not commit. The blocks are freed when the request has no other
// writer. A process that the plan does not name ends nothing. Idempotent, always answered OK.
struct AbortRequest {
  RequestId id;
  Epoch epoch;
  absl::Status reason;           // final status of the token stream
  InstanceId prefill = {};       // the writer, as in OpenTransferRequest
  Incarnation incarnation = {};  // of its process, as there
  bool unpermitted = false;      // as there; then it ends nothing
};

}  // namespace skein::scheduler
