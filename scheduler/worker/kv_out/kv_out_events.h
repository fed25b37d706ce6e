// What PrefillCore says to its shell about KV on its way to decode instances: calls to them, and
// the handoff sender's work and words. KvOut makes the effects and takes the events.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/request.h"
#include "scheduler/base/time.h"
#include "scheduler/vocabulary/handoff_block.h"

namespace skein::scheduler {

// ---- events ----

// Answers to calls.
template <class Reply>
struct Replied {
  RequestId id;
  Epoch epoch;
  Reply reply;
};
using OpenTransferReplied = Replied<OpenTransferReply>;
using RenewReplied = Replied<RenewReply>;
using CommitReplied = Replied<CommitReply>;
template <class Reply>
struct NumberedReplied {
  RequestId id;
  Epoch epoch;
  uint64_t number = 0;  // the call's `ask`, or `part`
  Reply reply;
};
using AcquireStagingBufferReplied = NumberedReplied<AcquireStagingBufferReply>;
using TakePartReplied = NumberedReplied<TakePartReply>;
using ReleaseStagingBufferReplied = NumberedReplied<ReleaseStagingBufferReply>;
// The handoff sender's messages about a staged handoff. It has data to send and no buffer; reported
// once until UseStagingBuffer.
struct HandoffWaits {
  RequestId id;
  Epoch epoch;
};
// These blocks lie in their slots; none of a part is reused before PartTaken.
struct HandoffPart {
  RequestId id;
  Epoch epoch;
  std::vector<StagedBlock> blocks;
};
// It has had nothing to put for a while, nothing of it is under way, and it touches the buffer no
// more before the next UseStagingBuffer.
struct HandoffIdle {
  RequestId id;
  Epoch epoch;
};
// The handoff sender's three ends; exactly one for each StartHandoff.
struct HandoffDone {  // every put of every prompt block of every layer completed
  RequestId id;
  Epoch epoch;
  std::vector<int64_t> bytes_per_layer;
  HandoffPath path = {};  // of `path` and `transport`
};
struct HandoffFailed {  // and no put is under way any more
  RequestId id;
  Epoch epoch;
  absl::Status status;
};
struct HandoffStopped {  // answer to StopHandoff: no put is under way any more
  RequestId id;
  Epoch epoch;
};

// ---- effects ----

// To the decode instance at `endpoint`, each answered by one ...Replied (CallAbort: none).
template <class Request>
struct DecodeCall {
  std::string endpoint;
  Request request;
  TimeUs timeout_us = 0;
  std::string permit = {};  // Placed::permit, which each call shows
};
using CallOpenTransfer = DecodeCall<OpenTransferRequest>;
using CallRenew = DecodeCall<RenewRequest>;
using CallAcquireStagingBuffer = DecodeCall<AcquireStagingBufferRequest>;
using CallTakePart = DecodeCall<TakePartRequest>;
using CallReleaseStagingBuffer = DecodeCall<ReleaseStagingBufferRequest>;
using CallCommit = DecodeCall<CommitRequest>;
using CallAbort = DecodeCall<AbortRequest>;
// This instance is about to compute these blocks of `id`'s prompt (ascending, at least one) and
// will put them, each whole and once, as soon as the layer of the step that fills it is done.
// `more`: AddToHandoff brings further ones. Comes before the first RunStep with the sequence.
struct OpenHandoff {
  RequestId id;
  Epoch epoch;
  SpecPtr spec;
  std::vector<HandoffBlock> blocks;
  bool more = false;
};
struct AddToHandoff {  // behind those it has
  RequestId id;
  Epoch epoch;
  std::vector<HandoffBlock> blocks;  // may be none
  bool more = false;
};
// The sender may write what it was opened with to the granted blocks (steps before this effect
// count too). No put is posted after `post_until_us`; one that is late all the same fails, since
// the decode side has closed the grant in `memory`.
struct StartHandoff {
  RequestId id;
  Epoch epoch;
  std::string endpoint;
  std::vector<BlockId> remote_blocks;  // those of the whole prompt, in token order
  std::string memory;                  // for Transport::Connect
  // Further ranks of a bound group, from rank 1: each gets its heads. Empty: there is one receiver,
  // and it gets all of them.
  std::vector<TransferTarget> others = {};
  TimeUs post_until_us = 0;
  // > 0: staged. Without remote blocks and memory: a buffer with so many slots comes with
  // UseStagingBuffer.
  int32_t staging_slots = 0;
};
struct UseStagingBuffer {  // until HandoffIdle or the handoff's end
  RequestId id;
  Epoch epoch;
  std::string memory;
};
struct PartTaken {  // the slots of these blocks may be used again
  RequestId id;
  Epoch epoch;
  std::vector<StagedBlock> blocks;
};
struct ExtendHandoff {  // the lease was renewed
  RequestId id;
  Epoch epoch;
  TimeUs post_until_us = 0;
};
// Post nothing more and answer HandoffStopped when nothing is under way. If the sender's end
// crosses this effect (HandoffDone or HandoffFailed already sent), that end counts and no
// HandoffStopped is needed; the effect is then ignored.
struct StopHandoff {
  RequestId id;
  Epoch epoch;
};

using KvOutEffect =
    std::variant<CallOpenTransfer, CallRenew, CallAcquireStagingBuffer, CallTakePart,
                 CallReleaseStagingBuffer, CallCommit, OpenHandoff, AddToHandoff, StartHandoff,
                 UseStagingBuffer, PartTaken, ExtendHandoff, StopHandoff>;

}  // namespace skein::scheduler
