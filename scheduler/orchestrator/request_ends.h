// RequestEnds: how a part of OrchestratorCore ends a request that it does not own. The core
// implements it: an end concerns all of its parts.
#pragma once

#include "scheduler/orchestrator/requests/request.h"

namespace skein::scheduler::orchestrator {

class RequestEnds {
 public:
  // Its router no longer wants it, or is gone: cancels it at all its instances and erases it.
  virtual void CloseByRouter(Request& request) = 0;

 protected:
  ~RequestEnds() = default;
};

}  // namespace skein::scheduler::orchestrator
