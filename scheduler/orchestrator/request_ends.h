// RequestEnds: how a part of OrchestratorCore ends a request that it does not own. The core
// implements it: an end concerns all of its parts.
#pragma once

#include "scheduler/orchestrator/requests/request.h"

namespace skein::scheduler::orchestrator {

class RequestEnds {
 public:
  // Its router wants no more of it, or is gone: it is cancelled wherever it may be. Erases it.
  virtual void CloseByRouter(Request& request) = 0;

 protected:
  ~RequestEnds() = default;
};

}  // namespace skein::scheduler::orchestrator
