// The Fabric for the steps of a node's groups: AllReduce, AllGather and AllToAll are kernels on the
// engine's stream (engine/cuda/collectives), over memory that the GPUs open of one another.
//
// A call. The hosts meet first, with some words to each: that tells calls that differ, ranks that
// died or aborted, and deadlines, as on any other path. Then each queues its kernel and returns; no
// host waits for a device. So OK says that the call is queued at this rank and begun at all others;
// work that is queued on the device behind it sees what it received.
//
// A step. After Tag the hosts meet at the next call, whose meeting carries the tag, and then only
// at calls of AllReduce and AllGather without data: all others are queued at once, so that they
// cost no message and a graph can hold them. OK then says that the call is queued here. The kernels
// compare what the calls are. None is queued after the call's deadline, nor later than
// `wait_max` after that meeting (DEADLINE_EXCEEDED), nor when this rank has aborted.
//
// A kernel that fails after that (a rank's process ended before its own ran, or is in another call)
// ends in bounded time (`wait_max`), at once when this rank aborts the group, and leaves its report
// on the device. A call without data is how to ask: it waits for the device, and its OK says that
// all calls before it went well at all ranks. A step ends with one, and uses nothing that it
// received before.
//
// All other calls, and all calls of groups that kernels cannot serve (more than kPeerRanksMax
// ranks, no memory, memory that a rank cannot open), take the fabric below. All ranks of a group
// decide alike, at its first call. Where the memory of a rank only rests (kernel_memory.h) that
// call fails at all ranks, UNAVAILABLE: the group is to be made again later.
//
// REQUIRES: every rank makes the calls of all its groups of this fabric in one order that all share
// (a step's groups, not those of a thread beside it): their kernels run one behind the other.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "engine/comm/fabric.h"
#include "engine/cuda/collectives/peer_group.h"
#include "engine/cuda/simt/stream.h"
#include "engine/device/copy_stream.h"
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
  // The most that one kernel waits for the others. The same at all ranks.
  std::chrono::steady_clock::duration wait_max = std::chrono::seconds(60);
  // Whether kernels may serve a group of these members; the same at all of them. Null: any.
  std::function<bool(std::span<const std::string> addresses)> serves;

  // Not null: memory of the device for groups is taken at once, reserved_bytes, and used again when
  // groups are gone. Then nothing is asked of the device's own stream but by calls of a step, and a
  // group may be made, met (a call without data) and broken by another thread while a graph is
  // recorded on it.
  std::shared_ptr<CopyStream> copies;
  size_t reserved_bytes = 0;

  // Why a group takes the fabric below although `serves` it; any thread, once for each size and
  // reason. May be empty.
  std::function<void(const std::string&)> warn;

  // Told of each kernel that was queued: the ranks of its group, and what it moves (call_bytes.h).
  // On the thread that calls. May be empty.
  std::function<void(int ranks, uint64_t bytes)> queued;
};

// Device bytes that one rank needs for all groups and modes of a node with `ranks` instances (2 to
// 8).
size_t KernelBytesOfNode(const PeerShape& shape, int ranks);

// Without `copies`, takes PeerMemoryBytes of the device for each group, kept until the fabric's
// end, since others may have it open. RESOURCE_EXHAUSTED: the device has not reserved_bytes.
absl::StatusOr<std::unique_ptr<Fabric>> MakeKernelFabric(KernelFabricParts parts);

}  // namespace skein::engine
