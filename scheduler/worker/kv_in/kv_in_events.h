// What DecodeCore and its shell say to each other about KV that comes in from prefill instances:
// their calls, and the copies out of staging buffers. KvIn takes the events and makes the effects.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/kv/block_pool.h"

namespace skein::scheduler {

// ---- events ----

struct OpenTransferCalled {
  CallId call;
  OpenTransferRequest request;
};
struct RenewCalled {
  CallId call;
  RenewRequest request;
};
struct CommitCalled {
  CallId call;
  CommitRequest request;
};
struct AcquireStagingBufferCalled {
  CallId call;
  AcquireStagingBufferRequest request;
};
struct TakePartCalled {
  CallId call;
  TakePartRequest request;
};
struct ReleaseStagingBufferCalled {
  CallId call;
  ReleaseStagingBufferRequest request;
};
struct PartCopied {  // the end of a CopyPart
  uint64_t copy = 0;
  absl::Status status;
};
struct GrantClosed {  // answers CloseGrant: no put under it changes anything any more
  GrantId grant;
};

// ---- effects ----

// `memory` is the config's, which the shell describes under `grant`, after it has opened it at the
// transport. The same goes for AnswerAcquireStagingBuffer.
struct AnswerOpenTransfer {
  CallId call;
  OpenTransferReply reply;
  GrantId grant = {};
};
// Nobody is to write under it any more; answered by one GrantClosed.
struct CloseGrant {
  GrantId grant;
};
struct AnswerRenew {
  CallId call;
  RenewReply reply;
};
struct AnswerCommit {
  CallId call;
  CommitReply reply;
};
struct AnswerAcquireStagingBuffer {
  CallId call;
  AcquireStagingBufferReply reply;
  GrantId grant = {};
};
struct AnswerTakePart {
  CallId call;
  TakePartReply reply;
};
struct AnswerReleaseStagingBuffer {
  CallId call;
  ReleaseStagingBufferReply reply;
};
// Copy what lies in the slots of a staging buffer into `blocks`, those of the sequence by
// global index; answered by one PartCopied.
struct CopyPart {
  uint64_t copy = 0;
  RequestId id;
  Epoch epoch;
  int buffer = 0;
  std::vector<StagedBlock> part;
  BlockTable blocks;
};
using KvInEffect =
    std::variant<AnswerOpenTransfer, AnswerRenew, AnswerAcquireStagingBuffer, AnswerTakePart,
                 AnswerReleaseStagingBuffer, CopyPart, AnswerCommit, CloseGrant>;

struct StagingConfig {
  std::vector<std::string>
      memory;         // of each staging buffer's buffer, for its writer; none: one-sided
  int32_t slots = 0;  // blocks of one layer that a buffer has room for
  TimeUs acquire_wait_us = 500 * kMillisecondUs;  // then the call is answered "not yet"
  // A request may keep a staging buffer without using it for so long.
  TimeUs hold_us = kSecondUs;
};

}  // namespace skein::scheduler
