// The Fabric of GPUs of one node, several ranks on one of them too: bytes go from device to device
// by CUDA's copies, over memory that processes open by its IPC handle (peer_link.h); a UCX fabric
// of the hosts tells which ranks live. Sums are done by the kernel that NCCL's fabric uses, so the
// bits are the same. Only with --config=cuda.
//
// Buffers lie in memory of cudaMalloc, and earlier work on them is complete (device_fabric.h). A
// call returns when its own work on the device is complete and its buffers are read by all.
//
// An allocation that another process has opened stays open there as long as the group lives; it
// should not be freed before (its memory then stays taken until the group's end). Ranks on
// different nodes, and processes that may not, cannot open one another's memory: the first call
// that needs it ends UNAVAILABLE at all ranks, with "ipc" and the rank in its message.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/comm/fabric.h"
#include "engine/ucx/ucx_options.h"

namespace skein::engine {

class LinkFabric;

// `device` is CUDA's ordinal. UNAVAILABLE: no such device, or UCX cannot start.
absl::StatusOr<std::unique_ptr<Fabric>> MakeCudaPeerFabric(const UcxOptions& hosts, int device);
// Over a fabric of the hosts that serves others, too; its address is this one's.
absl::StatusOr<std::unique_ptr<Fabric>> MakeCudaPeerFabric(std::shared_ptr<LinkFabric> hosts,
                                                           int device);

}  // namespace skein::engine
