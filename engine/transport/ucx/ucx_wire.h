// The Wire over a UcxPlane and own wires. Internal to engine/transport; see ucx_transport.h.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "engine/device/copy_stream.h"
#include "engine/device/peer_opener.h"
#include "engine/transport/wire.h"
#include "engine/ucx/ucx_parts.h"

namespace skein::engine {

// Connections that others opened to this process.
inline constexpr size_t kUcxSourcesMax = 1024;

// `copies` may be null; else it copies to and from device memory, and `opener`, which may be null
// too, shares that memory with other processes of the node.
std::unique_ptr<Wire> MakeUcxWire(UcxParts parts, std::shared_ptr<CopyStream> copies,
                                  std::shared_ptr<PeerOpener> opener = nullptr,
                                  size_t sources_max = kUcxSourcesMax);

}  // namespace skein::engine
