// RequestEnds: how a part of OrchestratorCore ends a request, or gives up its plan. The core
// implements it: an end concerns all of its parts.
#pragma once

#include "absl/status/status.h"
#include "scheduler/base/messages.h"
#include "scheduler/orchestrator/requests/request.h"

namespace skein::scheduler::orchestrator {

class RequestEnds {
 public:
  // The first three cancel the request wherever it may still be, and erase it.
  //
  // Its router closed it, or was lost.
  virtual void CloseByRouter(Request& request) = 0;
  // It failed; its router is told why.
  virtual void Fail(Request& request, const absl::Status& why) = 0;
  // It was answered completely.
  virtual void Finish(Request& request, FinishReason reason) = 0;
  // Its plan is given up, and it is planned again; after too many replans it fails.
  virtual void Replan(Request& request, const absl::Status& why) = 0;

 protected:
  ~RequestEnds() = default;
};

}  // namespace skein::scheduler::orchestrator
