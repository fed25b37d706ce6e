// What kernels that talk to other GPUs are written in, besides simt.h: memory that several GPUs
// reach. Include it from .cu files only.
//
// The memory of a peer, and a rank's own that peers write, is touched by these functions alone: on
// the emulator they are the only ones that can (emulator/peer_memory.h).
#pragma once

#include "engine/cuda/simt/simt.h"

#ifdef __CUDACC__
#include "engine/cuda/simt/simt_peer_cuda.h"
#else
#include "engine/cuda/emulator/peer_emulated.h"
#endif
