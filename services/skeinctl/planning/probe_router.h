// ProbeRouter: how skeinctl profile sends requests of its own to a running cluster. To the cluster
// it looks like a draining router, so no client is sent to it. Not bound to a thread, except where
// RouterShell says so.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "scheduler/base/ids.h"
#include "scheduler/base/prefill_shape.h"
#include "services/router/link/router_shell.h"

namespace skein::services {

class ProbeRouter {
 public:
  explicit ProbeRouter(const std::string& orchestrator);
  ~ProbeRouter();  // says goodbye; requests that still run end with it
  ProbeRouter(const ProbeRouter&) = delete;
  ProbeRouter& operator=(const ProbeRouter&) = delete;

  // A request with a random prompt of so many tokens, which ends after `max_tokens` and not before.
  // Its prompt is computed in this shape.
  scheduler::RequestId Send(const std::string& model, int64_t prompt_tokens, int64_t max_tokens,
                            scheduler::PrefillShape shape,
                            std::shared_ptr<RequestListener> listener);
  // The listener hears nothing more of it. An ended one is fine.
  void Cancel(scheduler::RequestId id);

 private:
  RouterShell shell_;
};

}  // namespace skein::services
