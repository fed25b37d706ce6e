// What each component of the router is given of the router's flags.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/console/console.h"
#include "services/http/byte_budget.h"
#include "services/http/server.h"
#include "services/router/access/accounts.h"
#include "services/router/access/caller.h"
#include "services/router/api/api.h"
#include "services/router/api/edge.h"
#include "services/router/jobs/offline_jobs.h"
#include "services/router/link/router_shell.h"
#include "services/router/options.h"
#include "services/router/spans/request_spans.h"
#include "services/router/trace_recorder.h"

namespace skein::services {

// This machine's name; "" if it has none.
std::string HostName();

// With a new incarnation at each call.
RouterShellOptions ShellOptions(const RouterOptions& options);

// A process's requests may hold a quarter of its memory, unless --max-held-bytes says otherwise. A
// small machine still takes the longest body that --max-body-bytes allows.
size_t HeldBytesMax(const RouterOptions& options);

// Its functions are left to the caller.
http::ServerOptions HttpOptions(const RouterOptions& options,
                                std::shared_ptr<http::ByteBudget> bodies);

EdgeOptions EdgeOptionsOf(const RouterOptions& options, Accounts* accounts);

// `trace`, `tracing` and `accounts` may be null.
RouterApiOptions ApiOptions(const RouterOptions& options, TraceRecorder* trace,
                            const RequestTracing* tracing, Accounts* accounts);

// The orchestrators of the first cell keep the jobs; their lines may be computed in any cell.
// `api` outlives the jobs.
OfflineJobsOptions JobsOptions(
    const RouterOptions& options, uint64_t incarnation,
    const std::shared_ptr<http::ByteBudget>& bodies, const RouterApi* api,
    std::function<absl::StatusOr<std::shared_ptr<const Caller>>(const std::string& owner)> caller);

ConsoleOptions ConsoleOptionsOf(const RouterOptions& options, std::vector<std::string> models,
                                uint64_t incarnation);

}  // namespace skein::services
