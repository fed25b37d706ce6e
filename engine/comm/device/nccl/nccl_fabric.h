// The Fabric of GPUs: the bytes go by NCCL; a UCX fabric of the hosts tells which ranks live.
// Only with --config=cuda; NCCL's library is loaded when it is first asked for.
//
// A message is an ncclSend and an ncclRecv; what belongs to one call is one NCCL group. Before it
// is launched, both ends of each message have agreed on it over the hosts' link, so what NCCL
// cannot tell (sizes that differ, a peer that never calls, stalls, died) is told there, and NCCL is
// started only when it can finish. If it does not, ncclCommAbort ends its kernels. Sums are done by
// a kernel of ours, in pairs of ranks and in f32, as NCCL's own reductions promise neither.
//
// Buffers lie in the device's memory, and earlier work on them is complete (Device::Synchronize). A
// call returns when its own work on the device is complete.
//
// NCCL's communicator of a group is set up behind MakeGroup, by a thread that ends with it; the
// first call waits for that. A rank where it fails ends the first call UNAVAILABLE at all ranks,
// with "nccl" and the rank in its message. Each rank needs a GPU of its own.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/comm/ring_fabric.h"
#include "engine/ucx/ucx_options.h"

namespace skein::engine {

class LinkFabric;

// `device` is CUDA's ordinal. UNAVAILABLE: no such device, no NCCL, or UCX cannot start.
absl::StatusOr<std::unique_ptr<Fabric>> MakeNcclFabric(const UcxOptions& hosts, int device);
// Over a fabric of the hosts that serves others, too; its address is this one's.
absl::StatusOr<std::unique_ptr<Fabric>> MakeNcclFabric(std::shared_ptr<LinkFabric> hosts,
                                                       int device);

// For rings, over the same hosts: communicators of pairs of ranks, which are made once and serve
// one ring after another (lane_fabric.h), so that rings make none.
absl::StatusOr<std::unique_ptr<RingFabric>> MakeNcclRings(std::shared_ptr<LinkFabric> hosts,
                                                          int device);

// The version by ncclGetVersion. UNAVAILABLE if this machine has no NCCL.
absl::StatusOr<int> NcclVersion();

}  // namespace skein::engine
