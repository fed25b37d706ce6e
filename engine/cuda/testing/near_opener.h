// PeerOpener of ranks that are threads of one process, on the emulator: all memory is near.
#pragma once

#include <memory>

#include "engine/device/peer_opener.h"

namespace skein::engine {

// `may_open` false: it opens nothing, as where a container forbids it.
std::unique_ptr<PeerOpener> MakeNearOpener(bool may_open = true);

}  // namespace skein::engine
