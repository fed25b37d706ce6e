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

struct GrantCalled {
  CallId call;
  GrantRequest request;
};
struct RenewCalled {
  CallId call;
  RenewRequest request;
};
struct CommitCalled {
  CallId call;
  CommitRequest request;
};
struct AskBackendCalled {
  CallId call;
  AskBackendRequest request;
};
struct TakePartCalled {
  CallId call;
  TakePartRequest request;
};
struct ReleaseBackendCalled {
  CallId call;
  ReleaseBackendRequest request;
};
struct PartCopied {  // the end of a CopyPart
  uint64_t copy = 0;
  absl::Status status;
};
// ---- effects ----

struct AnswerGrant {  // `memory` is the config's
  CallId call;
  GrantReply reply;
};
struct AnswerRenew {
  CallId call;
  RenewReply reply;
};
struct AnswerCommit {
  CallId call;
  CommitReply reply;
};
struct AnswerAskBackend {
  CallId call;
  AskBackendReply reply;
};
struct AnswerTakePart {
  CallId call;
  TakePartReply reply;
};
struct AnswerReleaseBackend {
  CallId call;
  ReleaseBackendReply reply;
};
// Copy what lies in the slots of `backend`'s buffer into `blocks`, those of the sequence by global
// index; answered by one PartCopied.
struct CopyPart {
  uint64_t copy = 0;
  RequestId id;
  Epoch epoch;
  int backend = 0;
  std::vector<StagedBlock> part;
  BlockTable blocks;
};
using KvInEffect = std::variant<AnswerGrant, AnswerRenew, AnswerAskBackend, AnswerTakePart,
                                AnswerReleaseBackend, CopyPart, AnswerCommit>;

struct StagingConfig {
  std::vector<std::string> memory;  // of each backend's buffer, for its writer; none: one-sided
  int32_t slots = 0;                // blocks of one layer that a buffer has room for
  TimeUs ask_wait_us = 500 * kMillisecondUs;  // then an Ask is answered "not yet"
  // A request may keep a backend without using it for so long.
  TimeUs hold_us = kSecondUs;
};

}  // namespace skein::scheduler
