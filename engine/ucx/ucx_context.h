// Starts UCX as engine/transport and engine/comm need it, and reads what it reports. Internal to
// them.
#pragma once

#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/ucx/ucx_options.h"

struct ucp_context;
struct ucp_worker;

namespace skein::engine {

struct UcxContext {
  ucp_context* context = nullptr;
  ucp_worker* worker = nullptr;
  std::string worker_address;
  bool fabric = false;  // it reaches other hosts (InfiniBand, RoCE, EFA)
};

// A setting of UCX by its name inside it, without UCX_ or, for one of a transport's own, its
// prefix.
using UcxSetting = std::pair<const char*, std::string>;

// Whether UCX_TLS (or `options`) permits shared memory, and tcp. UCX itself never uses tcp here:
// engine/net/tcp_wire.h does.
bool MayUseSharedMemory(const UcxOptions& options);
bool MayUseTcp(const UcxOptions& options);

// `more` are settings of UcxPlane's own. The caller destroys the worker, then the context.
absl::StatusOr<UcxContext> MakeUcxContext(const UcxOptions& options,
                                          std::span<const UcxSetting> more = {});

void Destroy(const UcxContext& context);

// `ucs_status` is a ucs_status_t; `what` names the call.
absl::Status FromUcs(int ucs_status, const char* what);

// The transports named by the text of ucp_ep_print_info, in order and once each, such as
// "sysv+posix" or "rc_mlx5".
std::string TransportsOfEndpointInfo(const std::string& info);

// `tls`, as UCX_TLS, without tcp. "" stands for all.
std::string WithoutTcp(const std::string& tls);

// `tls`, as UCX_TLS, without what reaches other hosts by RDMA.
std::string WithoutRdma(const std::string& tls);

// Whether the text of ucp_context_print_info names a transport to other hosts that is not tcp.
bool HasFabric(const std::string& info);

}  // namespace skein::engine
