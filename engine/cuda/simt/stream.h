// Stream: work that a device does in order. A cudaStream_t, named without CUDA's headers; null is
// the default stream. On the emulator that one runs what it is given at once; others note it
// (emulator/recording.h).
#pragma once

struct CUstream_st;

namespace skein::engine {

using CudaStream = CUstream_st*;

}  // namespace skein::engine
