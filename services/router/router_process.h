// The router as a whole: models, shell, API, HTTP servers.
#pragma once

#include "absl/status/status.h"
#include "services/router/options.h"

namespace skein::services {

// Runs until SIGTERM or SIGINT, then drains: not ready, new requests refused, running answers end.
absl::Status RunRouter(const RouterOptions& options);

}  // namespace skein::services
