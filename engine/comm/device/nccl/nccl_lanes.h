// Lanes that are NCCL communicators of two ranks. Only with --config=cuda. Internal to engine/comm.
//
// The calls on one communicator are in one order at both ends, since one ring at a time has it
// (lane_book.h). Each lane has a stream of its own, and one launch at a time on it: the host waits
// for that before the next. So no kernel waits in a queue behind one that waits for another rank,
// and rings that share a pair, or a GPU, need no order among them: each kernel that was launched
// finds room on the GPU and waits for its other end alone. For that room a lane's kernels are
// kept small (kBlocksMax): a GPU in two rings of 8 has 14 lanes, which take 56 blocks at most.
#pragma once

#include <memory>

#include "engine/comm/device/lanes/lane.h"
#include "engine/comm/device/nccl/nccl_api.h"

namespace skein::engine {

// Of CUDA's device `device`.
std::shared_ptr<LaneMaker> MakeNcclLaneMaker(const NcclApi* nccl, int device);

}  // namespace skein::engine
