// /metrics of the API's port: what an endpoint picker of the Gateway API reads of each pod.
#pragma once

#include <string>
#include <vector>

#include "scheduler/router/router_core.h"
#include "services/metrics/metrics.h"
#include "services/router/model/model_watch.h"

namespace skein::services {

// The router's own metrics, but with vLLM's families of load and KV cache for the cluster behind it
// in place of its own, since a picker takes a pod for an engine. All routers of a cluster say the
// same of it; what tells them apart is their own queue, which is added to what waits. Any thread.
std::string ClusterPage(const Metrics& own, const ModelWatch& watch,
                        const scheduler::RouterSnapshot& snapshot,
                        const std::vector<std::string>& models);

}  // namespace skein::services
