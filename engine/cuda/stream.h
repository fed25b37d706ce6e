// Stream: work that a device does in order. A cudaStream_t, named without CUDA's headers; null is
// the default stream, and the only one that the emulator has (it runs what it is given at once).
#pragma once

struct CUstream_st;

namespace skein::engine {

using CudaStream = CUstream_st*;

}  // namespace skein::engine
