// The events that a PrefillCore handles, and the effects that its shell carries out.
#pragma once

#include <variant>

#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/worker/kv_out/kv_out_events.h"
#include "scheduler/worker/membership/membership_events.h"
#include "scheduler/worker/steps/step.h"

namespace skein::scheduler {

// ---- events ----

struct AssignCalled {
  CallId call;
  AssignRequest request;
};
struct StartCalled {
  StartRequest request;
};
struct PlaceDecodeReplied {  // the answer to CallPlaceDecode
  RequestId id;
  Epoch epoch;
  PlaceDecodeReply reply;
};

using PrefillEvent =
    std::variant<AssignCalled, StartCalled, CancelCalled, PlaceDecodeReplied, OpenTransferReplied,
                 RenewReplied, AcquireStagingBufferReplied, TakePartReplied,
                 ReleaseStagingBufferReplied, CommitReplied, StepDone, HandoffWaits, HandoffPart,
                 HandoffIdle, HandoffDone, HandoffFailed, HandoffStopped, RegisterReplied,
                 ReportReplied, UnregisterReplied, Disconnected, Drain, OrderDrain, Tick>;

// ---- effects ----

struct AnswerAssign {
  CallId call;
  AssignReply reply;
};
struct CallPlaceDecode {  // to the orchestrator, on the stream
  PlaceDecodeRequest request;
};
using PrefillEffect =
    std::variant<AnswerAssign, CallPlaceDecode, CallOpenTransfer, CallRenew,
                 CallAcquireStagingBuffer, CallTakePart, CallReleaseStagingBuffer, CallCommit,
                 CallAbort, RunStep, ReleaseSequence, AbortStep, BreakGroup, OpenHandoff,
                 AddToHandoff, StartHandoff, UseStagingBuffer, PartTaken, ExtendHandoff,
                 StopHandoff, CallRegister, CallReport, CallUnregister, CloseStream, EngineFailed,
                 Drained>;

}  // namespace skein::scheduler
