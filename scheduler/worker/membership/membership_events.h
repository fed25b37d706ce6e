// What both WorkerCores say to their shell about the orchestrator: the stream to it, registration,
// reports, drain.
#pragma once

#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"

namespace skein::scheduler {

// ---- effects ----

// Open a stream to the orchestrator and send this as its first message. Answered by RegisterReplied
// or Disconnected.
struct CallRegister {
  RegisterRequest request;
};
// Messages on the stream, each answered by one ...Replied unless the stream breaks.
struct CallReport {
  ReportRequest request;
};
struct CallUnregister {
  UnregisterRequest request;
};
// Close the stream, if there is one; no event comes from it any more, Disconnected included.
struct CloseStream {};
// Drained and unregistered: the process may leave. Comes once.
struct Drained {};
// The engine is unusable. Its requests have ended; final reports follow, then Drained. At most
// once. The process must not wait for the engine's thread, which may never return.
struct EngineFailed {
  absl::Status status;
  TimeUs leaves_within_us = 0;  // at the latest; sooner if an orchestrator hears the reports
};

// ---- events ----

struct RegisterReplied {
  RegisterReply reply;
};
struct ReportReplied {
  uint64_t serial = 0;  // of the report
  ReportReply reply;
};
struct UnregisterReplied {
  UnregisterReply reply;
};
// The stream could not be opened, or is over: no event of it follows, and what was sent on it and
// is not answered yet will not be.
struct Disconnected {
  absl::Status status;
};
// From the orchestrator; not answered.
struct CancelCalled {
  CancelRequest request;
};
// SIGTERM: take nothing new, finish within `grace_us`, then end what is left with UNAVAILABLE, and
// leave. A decode instance has its streams moved meanwhile. (An operator's order to drain is
// OrderDrain; it has no end.)
struct Drain {
  TimeUs grace_us = 0;
};
// An operator's order, from the orchestrator (DrainOrder) or to the worker itself (POST /drain,
// /resume).
struct OrderDrain {
  bool drain = true;
};
struct Tick {};

struct MembershipConfig {
  WorkerIdentity identity;
  // A message that needs an answer is answered within this, or the stream is closed.
  TimeUs answer_timeout_us = 5 * kSecondUs;
  // The longest pause before the next attempt to open a stream; the first is an eighth of it.
  TimeUs register_retry_us = 300 * kMillisecondUs;
  // A report that is wanted soon waits for so long, and follows the one before by so long at least:
  // it collects what happens, and is sent after what a request waits for.
  TimeUs report_spacing_us = 2 * kMillisecondUs;
  // And so much more for each request that the last one named: reports cost a bounded share.
  TimeUs report_spacing_per_request_us = 20;
};

}  // namespace skein::scheduler
