// The events that a DecodeCore handles, and the effects that its shell carries out.
#pragma once

#include <variant>

#include "absl/status/status.h"
#include "scheduler/base/formation_messages.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/request.h"
#include "scheduler/base/time.h"
#include "scheduler/worker/decode/stream_gaps.h"
#include "scheduler/worker/decode/token_events.h"
#include "scheduler/worker/group/bound_group.h"
#include "scheduler/worker/group/shared_part.h"
#include "scheduler/worker/group/sharing_engine.h"
#include "scheduler/worker/kv_in/kv_in_events.h"
#include "scheduler/worker/membership/membership_events.h"
#include "scheduler/worker/steps/step.h"

namespace skein::scheduler {

// ---- events ----

// From the orchestrator; not answered.
struct AnnounceCalled {
  AnnounceRequest request;
  absl::Status checked;  // not OK: the engine cannot run it; OpenTransfer is answered with this
};
struct WithdrawCalled {
  WithdrawRequest request;
};
struct AbortCalled {  // needs no answer from the core; the shell answers OK at once
  AbortRequest request;
};

// The answer to OpenFeed: this instance's rank. Not OK: it cannot be opened.
struct FeedOpened {
  uint64_t epoch = 0;
  absl::StatusOr<int> rank;
};
// From the open feed: a message, or that the rank's process has ended.
struct FeedArrived {
  int rank = 0;
  FeedMessage message;
};
struct FeedLost {
  int rank = 0;
  absl::Status why;
};

using DecodeEvent =
    std::variant<AnnounceCalled, WithdrawCalled, OpenTransferCalled, RenewCalled,
                 AcquireStagingBufferCalled, TakePartCalled, ReleaseStagingBufferCalled, PartCopied,
                 GrantClosed, CommitCalled, CancelCalled, AbortCalled, AttachCalled, DetachCalled,
                 StepDone, RegisterReplied, ReportReplied, UnregisterReplied, Disconnected, Drain,
                 OrderDrain, PrepareFormation, CommitFormation, EndFormation, OrderMode,
                 SharingDone, FeedOpened, FeedArrived, FeedLost, Tick>;

// ---- effects ----

struct TellOpened {  // to the orchestrator, on the stream; dropped when there is none
  TransferOpened opened;
};

// A decode step gave the request its first token here, and began so long after its KV, with the
// token that its prefill instance had sampled, was whole. For people. Not of requests whose first
// token is computed here.
struct DecodeBegan {
  SpecPtr spec;
  TimeUs waited_us = 0;
};

using DecodeEffect =
    std::variant<TellOpened, AnswerOpenTransfer, AnswerRenew, AnswerAcquireStagingBuffer,
                 AnswerTakePart, AnswerReleaseStagingBuffer, CopyPart, AnswerCommit, CloseGrant,
                 EmitToken, EndStream, AskToMove, RunStep, ReleaseSequence, CallRegister,
                 CallReport, CallUnregister, CloseStream, EngineFailed, Drained, OpenFeed,
                 CloseFeed, SendOnFeed, TellFormation, TellMode, CallSharing, StreamGap,
                 DecodeBegan, SequenceNote>;

}  // namespace skein::scheduler
