// The Fabric of GPUs of one node, several ranks on one of them too: bytes go from device to device
// by CUDA's copies, over memory that processes open by its IPC handle (peer_link.h); a UCX fabric
// of the hosts says who is there. Sums are done by the kernel that NCCL's fabric uses, so the bits
// are the same. Only with --config=cuda.
//
// Buffers lie in memory of cudaMalloc, and earlier work on them is complete (device_fabric.h). A
// call returns when its own work on the device is complete and its buffers are read by all.
//
// An allocation that another process has opened stays open there as long as the group lives; it
// must not be freed before. Ranks on different nodes cannot open one another's memory: their first
// call ends UNAVAILABLE.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/comm/fabric.h"
#include "engine/transport/ucx_options.h"

namespace skein::engine {

// `device` is CUDA's ordinal. UNAVAILABLE: no such device, or UCX cannot start.
absl::StatusOr<std::unique_ptr<Fabric>> MakeCudaPeerFabric(const UcxOptions& hosts, int device);

}  // namespace skein::engine
