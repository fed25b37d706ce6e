// Communicator: collective operations of a group of ranks, each in a thread or process of its own.
//
// Implementations: in-process (threads of one process), UCX (processes of one host over shared
// memory, or of several over tcp), NCCL (GPUs). One conformance suite runs on each.
//
// A group is made by a Fabric (fabric.h). All ranks make the same calls in the same order. Calls
// are made by one thread at a time; Abort may come from any thread. Two groups of the same ranks
// are independent: each may be driven by a thread of its own, so that one moves data while the
// other's thread computes.
//
// OK speaks of the own rank: what it receives is there, whole, and all its buffers may be used
// again. It does not say that another rank's call ended OK, nor that what this one sent has been
// received: short messages may still be under way. Those arrive even if the sender destroys its
// communicator at once, but may be lost with its process. AllReduce, AllGather, ReduceScatter and
// AllToAll also meet, with no data, too: OK on one rank only after every rank has made the call.
//
// Buffers belong to the caller, live on the fabric's device and must not overlap unless said so. On
// a device whose work runs later a call is ordered with that work as its fabric says
// (device_fabric.h). Reductions sum in f32 and round once, in an order that depends on the ranks'
// numbers alone: every rank ends with the same bits.
//
// Errors. INTERNAL: the ranks' calls differ. RESOURCE_EXHAUSTED: no memory to sum in at this rank
// (UNAVAILABLE at the others). The rest under Bounds; each of them breaks the communicator.
//
// Bounds. No call outlives its deadline by more than a moment. A rank that dies, stalls past the
// deadline, or aborts ends the call on every rank that still needs something of it or of one that
// failed (UNAVAILABLE, or DEADLINE_EXCEEDED where only the own clock said so). The communicator is
// then broken on every rank, also where that call was OK: every later call is UNAVAILABLE at once,
// the contents of the buffers are undefined, and the survivors make a new group. Ranks may
// outnumber cores: a waiting call spins briefly, then sleeps.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "engine/base/dtype.h"

namespace skein::engine {

using CommDeadline = std::chrono::steady_clock::time_point;

class Communicator {
 public:
  virtual ~Communicator() = default;  // bounded: waits for nobody

  virtual int Rank() const = 0;
  virtual int Size() const = 0;

  // What the ranks must agree on beside their calls: every message of later calls carries it, and
  // one whose two ends have other tags ends the call as calls that differ do (INTERNAL). It costs
  // no message. 0 at first.
  virtual void Tag(uint64_t tag) = 0;

  // data[i] becomes the sum of all ranks' data[i]. `count` elements of `dtype`, in place.
  virtual absl::Status AllReduce(void* data, int64_t count, DType dtype, CommDeadline deadline) = 0;

  // receive = the ranks' `send`s end to end, in the order of ranks. receive.size() = Size() *
  // send.size(); send may be its own place in `receive`.
  virtual absl::Status AllGather(std::span<const std::byte> send, std::span<std::byte> receive,
                                 CommDeadline deadline) = 0;

  // receive[i] = the sum of all ranks' send[Rank() * count + i]. send holds Size() * count elements
  // of `dtype`, receive `count`.
  virtual absl::Status ReduceScatter(const void* send, void* receive, int64_t count, DType dtype,
                                     CommDeadline deadline) = 0;

  // send[r] goes to rank r, receive[r] comes from it; sizes may differ and be 0, and
  // receive[r].size() equals what r sends here (checked: INTERNAL on both).
  virtual absl::Status AllToAll(std::span<const std::span<const std::byte>> send,
                                std::span<const std::span<std::byte>> receive,
                                CommDeadline deadline) = 0;

  // `send` goes to rank `to`, `receive` comes from rank `from`, at once: one step of a ring when
  // every rank calls it. Either may be empty (the peer's is then, too).
  virtual absl::Status SendRecv(std::span<const std::byte> send, int to,
                                std::span<std::byte> receive, int from, CommDeadline deadline) = 0;

  // `data` of rank `root` reaches all.
  virtual absl::Status Broadcast(std::span<std::byte> data, int root, CommDeadline deadline) = 0;

  // Breaks the communicator, here and as soon as word of it arrives at every other rank: calls
  // under way end with UNAVAILABLE and this reason. Idempotent, never blocks.
  virtual void Abort(const absl::Status& reason) = 0;
};

}  // namespace skein::engine
