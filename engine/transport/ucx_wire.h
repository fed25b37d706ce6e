// The Wire over libucp. Internal to this folder; see ucx_transport.h.
#pragma once

#include <memory>

#include "engine/device/copy_stream.h"
#include "engine/transport/ucx_context.h"
#include "engine/transport/wire.h"

namespace skein::engine {

// Takes the worker and the context. `copies` is null, or reaches memory of a device.
std::unique_ptr<Wire> MakeUcxWire(const UcxContext& context, std::shared_ptr<CopyStream> copies);

}  // namespace skein::engine
