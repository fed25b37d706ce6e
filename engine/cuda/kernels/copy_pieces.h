// A kernel that copies many small pieces at once: a launch takes the time of one cudaMemcpyAsync,
// however many pieces it has.
#pragma once

#include <cstddef>
#include <span>

#include "engine/cuda/simt/stream.h"
#include "engine/device/copy_stream.h"

namespace skein::engine {

// Queues the copies on `stream` of the current device. Both sides of each are memory that the
// device reads and writes itself (its own, a peer's, page-locked memory of the host); they do not
// overlap. The list is read before this returns. Fastest where both sides of a piece are aligned to
// 16 bytes, or off by the same.
void LaunchCopyPieces(std::span<const CopyPiece> pieces, CudaStream stream);

}  // namespace skein::engine
