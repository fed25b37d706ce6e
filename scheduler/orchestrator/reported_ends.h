// ReportedEnds: what follows when an instance reports the end of a request: the request has ended,
// is planned again, or waits for its other instances. Engines that failed under it are counted, and
// the paths that its KV took are explained. Owns the failures under requests that routers have yet
// to submit: a request may have failed an engine under a former orchestrator. Part of WorkerSide.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/orchestrator/decode_flow.h"
#include "scheduler/orchestrator/explain/explanation_log.h"
#include "scheduler/orchestrator/orchestrator_events.h"
#include "scheduler/orchestrator/plan_numbers.h"
#include "scheduler/orchestrator/prefill_flow.h"
#include "scheduler/orchestrator/registry/registry.h"
#include "scheduler/orchestrator/replanner.h"
#include "scheduler/orchestrator/request_ends.h"
#include "scheduler/orchestrator/requests/engine_failures.h"
#include "scheduler/orchestrator/requests/request.h"
#include "scheduler/orchestrator/requests/request_table.h"
#include "scheduler/orchestrator/router_side.h"

namespace skein::scheduler::orchestrator {

class ReportedEnds {
 public:
  // Not owned; they outlive it.
  struct Parts {
    RequestTable* requests = nullptr;
    Registry* registry = nullptr;
    const PlanNumbers* numbers = nullptr;
    PrefillFlow* prefill = nullptr;
    DecodeFlow* decode = nullptr;
    Replanner* replanner = nullptr;
    RouterSide* routers = nullptr;
    ExplanationLog* explanations = nullptr;
    RequestEnds* ends = nullptr;
    std::vector<OrchestratorEffect>* effects = nullptr;
  };
  explicit ReportedEnds(const Parts& parts) : parts_(parts) {}

  // A repeated report of the same end changes nothing.
  void Take(const Instance& instance, const EndedRequest& ended, TimeUs now);
  // Of engines under this request, which is submitted now.
  EarlyFailures::Engines TakeEarlyFailures(RequestId id) { return early_.Take(id); }
  absl::Status CheckInvariants() const { return early_.CheckInvariants(); }

 private:
  void NotePaths(Request* alive, const Instance& from, const EndedRequest& ended);
  void TakeDecodeEnded(Request& request, const EndedRequest& ended, TimeUs now);
  void TakeUnclaimed(Request& request, const absl::Status& why, TimeUs now);
  void NoteHandoff(const Request& request, const EndedRequest& ended, InstanceId prefill,
                   TimeUs now);
  void TakePrefillEnded(Request& request, Member& member, const EndedRequest& ended, TimeUs now);

  const Parts parts_;
  EarlyFailures early_;
};

}  // namespace skein::scheduler::orchestrator
