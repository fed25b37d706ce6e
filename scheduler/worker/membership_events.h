// What both WorkerCores say to their shell about the orchestrator: registration, reports, drain.
#pragma once

#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"

namespace skein::scheduler {

// ---- effects: calls to the orchestrator, each answered by one ...Replied event ----

struct CallRegister {
  RegisterRequest request;
  TimeUs timeout_us = 0;
};
struct CallReport {
  ReportRequest request;
  TimeUs timeout_us = 0;
};
struct CallUnregister {
  UnregisterRequest request;
  TimeUs timeout_us = 0;
};
// Drained and unregistered: the process may leave. Comes once.
struct Drained {};
// The engine is unusable. Its requests have ended; what follows are last words, then Drained. Comes
// at most once. The process must not wait for the engine's thread: it may never return.
struct EngineFailed {
  absl::Status status;
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
// From the orchestrator; needs no answer from the core: the shell answers OK at once.
struct CancelCalled {
  CancelRequest request;
};
// SIGTERM: take nothing new, finish within `grace_us`, then end what is left with UNAVAILABLE, and
// leave. (An operator's order to drain comes with ReportReplied; it has no end.)
struct Drain {
  TimeUs grace_us = 0;
};
// An operator's order that came to the worker itself (POST /drain, /resume): as one that comes with
// ReportReplied.
struct OrderDrain {
  bool drain = true;
};
struct Tick {};

struct MembershipConfig {
  WorkerIdentity identity;
  TimeUs rpc_timeout_us = kSecondUs;
  TimeUs register_retry_us = 500 * kMillisecondUs;
  // Least time between two reports that are sent because requests ended.
  TimeUs report_spacing_us = 2 * kMillisecondUs;
  // And so much more for each request that the last one listed: reports cost a bounded share.
  TimeUs report_spacing_per_request_us = 20;
};

}  // namespace skein::scheduler
