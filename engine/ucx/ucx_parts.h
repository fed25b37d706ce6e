// All by which a process reaches others, for engine/transport and engine/comm: rings within the
// host, tcp, and UCX for what neither reaches. Internal to them.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "engine/host/host_wire.h"
#include "engine/net/tcp_wire.h"
#include "engine/ucx/ucx_context.h"
#include "engine/ucx/ucx_options.h"

namespace skein::engine {

struct UcxParts {
  UcxContext context;              // the owner calls Destroy, after all that uses it is gone
  std::unique_ptr<HostWire> host;  // null: not permitted, or /proc does not allow it
  std::unique_ptr<TcpWire> tcp;    // null: not permitted
  bool rma = false;                // peers may put into memory here by UCX's RMA
  std::string address;             // from SealAddress
};

// UNAVAILABLE, RESOURCE_EXHAUSTED or INVALID_ARGUMENT if something does not start with these
// options. `more` as in MakeUcxContext.
absl::StatusOr<UcxParts> MakeUcxParts(const UcxOptions& options,
                                      std::span<const UcxSetting> more = {});

}  // namespace skein::engine
