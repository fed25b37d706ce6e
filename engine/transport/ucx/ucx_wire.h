// The Wire over libucp. Internal to engine/transport; see ucx_transport.h.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "engine/device/copy_stream.h"
#include "engine/device/peer_opener.h"
#include "engine/host/host_wire.h"
#include "engine/transport/wire.h"
#include "engine/ucx/ucx_context.h"

namespace skein::engine {

// Connections that others opened to this process.
inline constexpr size_t kUcxSourcesMax = 1024;

// Takes ownership of the worker and the context. Without `host` everything goes over UCX. `address`
// is this process's address from SealAddress. `copies` may be null; else it copies to and from
// device memory, and `opener`, which may be null too, shares that memory with other processes of
// the node.
std::unique_ptr<Wire> MakeUcxWire(const UcxContext& context, std::unique_ptr<HostWire> host,
                                  const std::string& address, std::shared_ptr<CopyStream> copies,
                                  std::shared_ptr<PeerOpener> opener = nullptr,
                                  size_t sources_max = kUcxSourcesMax);

}  // namespace skein::engine
