// Collectives of the GPUs of one node as kernels on the engine's stream: no host waits, and a
// step's CUDA graph takes them in.
//
// Every rank of the group makes the same calls in the same order, each on a stream of its own; a
// call returns when its kernel is queued. Work that is queued behind it sees what it received. All
// buffers are device memory of this rank; they need not be peer-mapped, and elements are aligned as
// usual (16 bytes is faster). A graph may hold the calls: what changes from launch to launch (the
// epochs) lies in device memory.
//
// Reductions sum in f32, in the order of SumInOrder (engine/comm/algorithms/reduce.h), and round
// once: all ranks get the same bits, those of every other communicator.
//
// Failure. A kernel waits for a peer no longer than PeerGroup::wait_ns_max. Then, or when a peer is
// in another call, it reports (PeerGroup::report), tells all ranks, and ends; every later kernel of
// the group ends at once. Results since the last good look at the report are then undefined, and
// the survivors make a new group in new memory. To break a group, the host stores a word that is
// not 0 where its memory begins: kernels that wait, and those that would, end with kTold.
#pragma once

#include <cstdint>
#include <span>

#include "engine/base/dtype.h"
#include "engine/cuda/collectives/peer_group.h"
#include "engine/cuda/simt/stream.h"

namespace skein::engine {

enum class ReduceWay { kOneShot, kTwoShot };

// Up to so many bytes all elements go to all ranks; a choice by what others measured for 8 GPUs on
// NVLink, never measured here.
inline constexpr int64_t kPeerOneShotBytesMax = 256 << 10;
constexpr ReduceWay PeerReduceWay(int64_t bytes) {
  return bytes <= kPeerOneShotBytesMax ? ReduceWay::kOneShot : ReduceWay::kTwoShot;
}

// data[i] becomes the sum of all ranks' data[i], `count` elements.
void PeerAllReduce(const PeerGroup& group, void* data, int64_t count, DType dtype,
                   CudaStream stream);

// receive = the ranks' `send`s, `bytes` each, in the order of ranks. `send` may be its own place
// in `receive`.
void PeerAllGather(const PeerGroup& group, const void* send, int64_t bytes, void* receive,
                   CudaStream stream);

// send[r] goes to rank r, receive[r] comes from it; group.ranks of each, sizes may differ and be 0.
void PeerAllToAll(const PeerGroup& group, std::span<const std::span<const std::byte>> send,
                  std::span<const std::span<std::byte>> receive, CudaStream stream);

}  // namespace skein::engine
