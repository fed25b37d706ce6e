// The Fabric for the steps of a node's groups: AllReduce, AllGather and AllToAll are kernels on the
// engine's stream (engine/cuda/collectives), over memory that the GPUs open of one another.
//
// A call. The hosts meet first, with some words to each: that tells calls that differ, ranks that
// died or aborted, and deadlines, as on any other path. Then each queues its kernel and returns; no
// host waits for a device. So OK says that the call is queued at this rank and begun at all others;
// work that is queued on the device behind it sees what it received.
//
// A kernel that fails after that (a rank's process ended before its own ran) ends in bounded time
// and leaves its report on the device. A call without data is how to ask: it waits for the device,
// and its OK says that all calls before it went well at all ranks. A step ends with one.
//
// All other calls, and all calls of groups that kernels cannot serve (more than kPeerRanksMax
// ranks, memory that a rank cannot open), take the fabric below. All ranks of a group decide alike.
//
// REQUIRES: every rank makes the calls of all its groups of this fabric in one order that all share
// (a step's groups, not those of a thread beside it): their kernels run one behind the other.
#pragma once

#include <memory>

#include "engine/comm/fabric.h"
#include "engine/cuda/collectives/peer_group.h"
#include "engine/cuda/simt/stream.h"
#include "engine/device/device.h"
#include "engine/device/peer_opener.h"

namespace skein::engine {

struct KernelFabricParts {
  std::shared_ptr<Fabric> hosts;  // buffers in the host's memory; the address is its
  std::shared_ptr<Fabric> below;  // buffers on the device; may be `hosts` where that is the host
  std::shared_ptr<Device> device;
  CudaStream stream = nullptr;  // the device's
  std::shared_ptr<PeerOpener> opener;
  PeerShape shape;
};

// Takes PeerMemoryBytes of the device for each group, kept until the fabric's end, since others may
// have it open.
std::unique_ptr<Fabric> MakeKernelFabric(KernelFabricParts parts);

}  // namespace skein::engine
