// The Wire over libucp. Internal to this folder; see ucx_transport.h.
#pragma once

#include <memory>

#include "engine/transport/ucx_context.h"
#include "engine/transport/wire.h"

namespace skein::engine {

// Takes the worker and the context.
std::unique_ptr<Wire> MakeUcxWire(const UcxContext& context);

}  // namespace skein::engine
