// Starting UCX as the transport needs it, and reading what it says. Internal to this folder.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/transport/ucx_transport.h"

struct ucp_context;
struct ucp_worker;

namespace skein::engine {

struct UcxContext {
  ucp_context* context = nullptr;
  ucp_worker* worker = nullptr;
  std::string worker_address;
};

// The caller destroys the worker, then the context.
absl::StatusOr<UcxContext> MakeUcxContext(const UcxOptions& options);

// `ucs_status` is a ucs_status_t; `what` names the call.
absl::Status FromUcs(int ucs_status, const char* what);

// The transports named by the text of ucp_ep_print_info, in order and once each, such as
// "sysv+posix" or "tcp".
std::string LanesOfEndpointInfo(const std::string& info);

}  // namespace skein::engine
