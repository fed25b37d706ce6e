// The Wire over libucp. Internal to this folder; see ucx_transport.h.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/transport/ucx_transport.h"
#include "engine/transport/wire.h"

namespace skein::engine {

struct UcxWireAndAddress {
  std::unique_ptr<Wire> wire;
  std::string worker_address;
};

absl::StatusOr<UcxWireAndAddress> MakeUcxWire(const UcxOptions& options);

// The transports named by the text of ucp_ep_print_info, in order and once each, such as
// "sysv+posix" or "tcp".
std::string LanesOfEndpointInfo(const std::string& info);

}  // namespace skein::engine
