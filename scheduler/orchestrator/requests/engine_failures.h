// EngineFailures: the engines that failed in a step with one request, and the processes that ended
// while they may have computed its prompt. Part of a Request.
// EarlyFailures: failures under requests that this orchestrator does not know yet. Owned by
// WorkerSide.
//
// The rule. A request is *condemned*, that is not planned again (Replanner), when
//   - kFailedMax engines reported a failure in a step with it: the step ended with an error or with
//     NaN, or it did not end; or
//   - kAllMax engines failed or were lost under it. A process that ends without a word may have
//     crashed because of the request (SIGSEGV), or have been killed for reasons of its own, so it
//     takes one more of them.
// A loss counts only if the instance may have been computing the prompt: the request's transfer was
// open, or its only instance had asked for a decode place, and it was the instance's turn in the
// plan (Request::MayCompute). One that opens the transfer at the instance that its plan names is
// counted, too: it calls that instance before its first step, and if that grants blocks, the
// orchestrator hears of it before it gives the lost process up. And only if the process has ended:
// its stream broke and it did not come back, or another process has its address. A crashed process
// closes its connections, so an instance that falls silent on an open stream was cut off, or its
// host died. That is no fault of a request.
//
// The bound. A request that makes engines fail costs kFailedMax of them, one that makes processes
// crash kAllMax: it reaches no further one. The decode side misses the KV of a dead writer before
// the orchestrator's lease of that instance ends. But a request that is given up there is planned
// again only when the instance has reported the plan's end, or was lost, and the loss counts first
// (Replanner::HasLost). After the first failure or loss it runs in steps of its own
// (AssignRequest::suspect), so it takes no other request with it. Plans that were lost otherwise
// are bounded by max_replans.
//
// Engines are known by the incarnation of their process, which outlives the orchestrator. A request
// that comes from another orchestrator, or from one before a restart, brings those that its router
// was told of; those that workers report here are added, and each counts once. Losses are not told
// to the router: the next orchestrator counts them anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"

namespace skein::scheduler::orchestrator {

class EngineFailures {
 public:
  static constexpr int64_t kFailedMax = 2;
  static constexpr int64_t kAllMax = 3;

  EngineFailures() = default;
  explicit EngineFailures(const FailedEngines& told);  // by the request's router

  // The instance reports that its engine failed in a step with the request. False: nothing new.
  bool Fail(Incarnation engine, InstanceId instance);
  // The process of the instance ended while it may have computed the prompt.
  void Lose(Incarnation engine, InstanceId instance) { lost_.emplace(engine, instance); }

  // What its router is told.
  FailedEngines failed() const;
  int64_t failed_or_lost() const;
  // The status with which the request ends, if it is condemned; else OK. INTERNAL: engines said
  // that they failed. UNAVAILABLE: it may not be the request's fault, so the client may try again.
  absl::Status Verdict() const;

 private:
  // The instance's number, for people; none: it failed under another orchestrator.
  using Engines = std::map<Incarnation, InstanceId>;
  std::string ToString() const;

  Engines failed_;
  Engines lost_;
};

// Workers connect to a new orchestrator before routers do. Keeps the latest kMax requests.
class EarlyFailures {
 public:
  using Engines = std::map<Incarnation, InstanceId>;
  static constexpr size_t kMax = 1024;

  void Add(RequestId request, Incarnation engine, InstanceId instance);
  // Those under this request, which is known from now on.
  Engines Take(RequestId request);
  size_t size() const { return failures_.size(); }
  absl::Status CheckInvariants() const;  // both tables have the same requests, and at most kMax

 private:
  std::map<RequestId, Engines> failures_;
  std::deque<RequestId> oldest_first_;  // those of failures_
};

}  // namespace skein::scheduler::orchestrator
