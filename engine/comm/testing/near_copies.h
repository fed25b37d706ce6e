// A CopyStream of memory that the host itself reaches: each copy is done when it is queued.
#pragma once

#include <memory>

#include "engine/device/copy_stream.h"

namespace skein::engine {

std::unique_ptr<CopyStream> MakeNearCopies();

}  // namespace skein::engine
