// The Wire over libucp. Internal to this folder; see ucx_transport.h.
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

// Takes the worker and the context. `host` null: everything goes over UCX. `address` is this
// process's, as SealAddress gives it. `copies` is null, or reaches memory of a device, which
// `opener`, if there is one, shares with others of the node.
std::unique_ptr<Wire> MakeUcxWire(const UcxContext& context, std::unique_ptr<HostWire> host,
                                  const std::string& address, std::shared_ptr<CopyStream> copies,
                                  std::shared_ptr<PeerOpener> opener = nullptr,
                                  size_t sources_max = kUcxSourcesMax);

}  // namespace skein::engine
