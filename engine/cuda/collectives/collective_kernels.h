// The kernels of collectives.h. Included from .cu files only.
//
// One-shot: every rank stores its elements at every other, then each sums for itself. Two-shot:
// each rank sums one slice and stores the sums at the others: less on the wire, one meeting more.
// Peers are only stored to: a store needs no answer, a load over NVLink waits for one. (The designs
// are those of vLLM's custom all-reduce and of TensorRT-LLM; FlashInfer stores as here.)
#pragma once

#include <type_traits>

#include "engine/cuda/collectives/peer_lane.h"

namespace skein::engine {

inline constexpr int kVecBytes = 16;

// Each rank's part of an all-to-all, by rank. Buffers are this rank's own.
struct PeerParts {
  const std::byte* send[kPeerRanksMax] = {};
  int64_t send_bytes[kPeerRanksMax] = {};
  std::byte* receive[kPeerRanksMax] = {};
  int64_t receive_bytes[kPeerRanksMax] = {};
};

__device__ inline bool IsVecAligned(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % kVecBytes == 0;
}

// The first `bytes` bytes at p, at most 16, then zeros. p is aligned as its elements are.
__device__ inline uint4 ReadVec(const std::byte* p, int64_t bytes) {
  if (bytes >= kVecBytes && IsVecAligned(p)) return simt::Load<uint4>(p);
  uint32_t words[4] = {};
#pragma unroll
  for (int i = 0; i < kVecBytes; ++i) {
    if (i < bytes) words[i / 4] |= static_cast<uint32_t>(p[i]) << (i % 4 * 8);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}
__device__ inline void WriteVec(std::byte* p, int64_t bytes, uint4 value) {
  if (bytes >= kVecBytes && IsVecAligned(p)) return simt::Store(p, value);
  const uint32_t words[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
  for (int i = 0; i < kVecBytes; ++i) {
    if (i < bytes) p[i] = static_cast<std::byte>(words[i / 4] >> (i % 4 * 8) & 0xffu);
  }
}

// The sum of the ranks' values in the order of SumInOrder (engine/comm/algorithms/reduce.h): in
// pairs of neighbours, then pairs of pairs; one without a neighbour waits.
template <int kRanks>
__device__ inline float SumInPairs(const float (&x)[kRanks]) {
  float waiting[kRanks];
  int depth = 0;
#pragma unroll
  for (int r = 0; r < kRanks; ++r) {
    float sum = x[r];
#pragma unroll
    for (int rest = r; rest % 2 == 1; rest /= 2) sum = __fadd_rn(waiting[--depth], sum);
    waiting[depth++] = sum;
  }
  float sum = waiting[--depth];
#pragma unroll
  while (depth > 0) sum = __fadd_rn(waiting[--depth], sum);
  return sum;
}

// Of one word: an f32 or two 16-bit floats.
template <typename T, int kRanks>
__device__ inline uint32_t SumWords(const uint32_t (&words)[kRanks]) {
  float x[kRanks];
  if constexpr (std::is_same_v<T, float>) {
#pragma unroll
    for (int r = 0; r < kRanks; ++r) x[r] = __uint_as_float(words[r]);
    return __float_as_uint(SumInPairs<kRanks>(x));
  } else {
    float y[kRanks];
#pragma unroll
    for (int r = 0; r < kRanks; ++r) {
      const float2 pair = simt::Widen2<T>(words[r]);
      x[r] = pair.x;
      y[r] = pair.y;
    }
    return simt::Narrow2<T>(SumInPairs<kRanks>(x), SumInPairs<kRanks>(y));
  }
}
template <typename T, int kRanks>
__device__ inline uint4 SumVecs(const uint4 (&vecs)[kRanks]) {
  uint32_t x[kRanks], y[kRanks], z[kRanks], w[kRanks];
#pragma unroll
  for (int r = 0; r < kRanks; ++r) {
    x[r] = vecs[r].x, y[r] = vecs[r].y, z[r] = vecs[r].z, w[r] = vecs[r].w;
  }
  return make_uint4(SumWords<T, kRanks>(x), SumWords<T, kRanks>(y), SumWords<T, kRanks>(z),
                    SumWords<T, kRanks>(w));
}

// A stretch of a buffer, in bytes.
struct PeerStretch {
  int64_t begin;
  int64_t bytes;
};
__device__ inline PeerStretch SegmentOf(int64_t begin, int64_t end, int64_t segment,
                                        int64_t bytes) {
  const int64_t first = begin + segment * bytes < end ? begin + segment * bytes : end;
  return {first, first + bytes < end ? bytes : end - first};
}

// The own elements and what the others stored, summed.
template <typename T, int kRanks, class Rules>
__device__ inline uint4 SumAt(const PeerLane<kRanks, Rules>& lane, int rank, const std::byte* own,
                              int64_t at, int64_t bytes) {
  uint4 vecs[kRanks];
#pragma unroll
  for (int p = 0; p < kRanks; ++p) {
    vecs[p] = p == rank ? ReadVec(own + at, bytes - at) : simt::PeerLoad<uint4>(lane.Inbox(p) + at);
  }
  return SumVecs<T, kRanks>(vecs);
}

template <int kRanks>
__device__ inline uint32_t AllPeersOf(int rank) {
  return ((1u << kRanks) - 1) & ~(1u << rank);
}

// `signature` is the call's. Blocks: PeerSegments of `bytes`, at most shape.lanes.
template <typename T, int kRanks, class Rules>
__global__ void ReduceOneShot(const __grid_constant__ PeerGroup group, std::byte* data,
                              int64_t bytes, uint32_t signature) {
  PeerLane<kRanks, Rules> lane(group, static_cast<int>(blockIdx.x));
  if (!lane.Open()) return;
  const int64_t first = int64_t{threadIdx.x} * kVecBytes, step = int64_t{blockDim.x} * kVecBytes;
  const int64_t segment_bytes = PeerSegmentBytes(group.shape, bytes);
  const int64_t segments = PeerSegments(group.shape, bytes);
  for (int64_t segment = blockIdx.x; segment < segments; segment += group.shape.lanes) {
    const PeerStretch part = SegmentOf(0, bytes, segment, segment_bytes);
    std::byte* const own = data + part.begin;
    for (int64_t at = first; at < part.bytes; at += step) {
      const uint4 vec = ReadVec(own + at, part.bytes - at);
#pragma unroll
      for (int p = 0; p < kRanks; ++p) {
        if (p != group.rank) simt::PeerStore(lane.Outbox(p) + at, vec);
      }
    }
    if (!lane.Meet(AllPeersOf<kRanks>(group.rank), signature, signature)) return;
    for (int64_t at = first; at < part.bytes; at += step) {
      WriteVec(own + at, part.bytes - at, SumAt<T>(lane, group.rank, own, at, part.bytes));
    }
  }
  lane.Close();
}

// Blocks: PeerSegments of a slice's bytes, at most shape.lanes.
template <typename T, int kRanks, class Rules>
__global__ void ReduceTwoShot(const __grid_constant__ PeerGroup group, std::byte* data,
                              int64_t bytes, int64_t slice_bytes, uint32_t signature) {
  PeerLane<kRanks, Rules> lane(group, static_cast<int>(blockIdx.x));
  if (!lane.Open()) return;
  const int64_t first = int64_t{threadIdx.x} * kVecBytes, step = int64_t{blockDim.x} * kVecBytes;
  const uint32_t all = AllPeersOf<kRanks>(group.rank);
  const int64_t segment_bytes = PeerSegmentBytes(group.shape, slice_bytes);
  const int64_t segments = PeerSegments(group.shape, slice_bytes);
  const auto part_of = [&](int rank, int64_t segment) {
    const int64_t begin = rank * slice_bytes < bytes ? rank * slice_bytes : bytes;
    const int64_t end = begin + slice_bytes < bytes ? begin + slice_bytes : bytes;
    return SegmentOf(begin, end, segment, segment_bytes);
  };
  for (int64_t segment = blockIdx.x; segment < segments; segment += group.shape.lanes) {
#pragma unroll
    for (int p = 0; p < kRanks; ++p) {
      if (p == group.rank) continue;
      const PeerStretch part = part_of(p, segment);
      for (int64_t at = first; at < part.bytes; at += step) {
        simt::PeerStore(lane.Outbox(p) + at, ReadVec(data + part.begin + at, part.bytes - at));
      }
    }
    if (!lane.Meet(all, signature, signature)) return;
    const PeerStretch mine = part_of(group.rank, segment);
    std::byte* const own = data + mine.begin;
    for (int64_t at = first; at < mine.bytes; at += step) {
      const uint4 sum = SumAt<T>(lane, group.rank, own, at, mine.bytes);
      WriteVec(own + at, mine.bytes - at, sum);
#pragma unroll
      for (int p = 0; p < kRanks; ++p) {
        if (p != group.rank) simt::PeerStore(lane.Outbox(p) + at, sum);
      }
    }
    if (!lane.Meet(all, ~signature, ~signature)) return;
#pragma unroll
    for (int p = 0; p < kRanks; ++p) {
      if (p == group.rank) continue;
      const PeerStretch part = part_of(p, segment);
      for (int64_t at = first; at < part.bytes; at += step) {
        WriteVec(data + part.begin + at, part.bytes - at,
                 simt::PeerLoad<uint4>(lane.Inbox(p) + at));
      }
    }
  }
  lane.Close();
}

__device__ inline int64_t LargerOf(const PeerParts& parts, int peer) {
  return parts.send_bytes[peer] > parts.receive_bytes[peer] ? parts.send_bytes[peer]
                                                            : parts.receive_bytes[peer];
}

// A call's signature with one size in it.
constexpr uint32_t PeerSignature(uint32_t operation, int64_t bytes) {
  const uint64_t mixed = (static_cast<uint64_t>(bytes) * 8 + operation) * 0x9e3779b97f4a7c15u;
  return static_cast<uint32_t>(mixed >> 32);
}

// All-to-all and all-gather. Blocks: the most PeerSegments of a pair's larger size, at most
// shape.lanes.
template <int kRanks, class Rules>
__global__ void ExchangeParts(const __grid_constant__ PeerGroup group,
                              const __grid_constant__ PeerParts parts, uint32_t operation) {
  PeerLane<kRanks, Rules> lane(group, static_cast<int>(blockIdx.x));
  if (!lane.Open()) return;
  const int64_t first = int64_t{threadIdx.x} * kVecBytes, step = int64_t{blockDim.x} * kVecBytes;
  const int own = group.rank;
  if (parts.send[own] != parts.receive[own]) {
    for (int64_t at = blockIdx.x * step + first; at < parts.send_bytes[own];
         at += gridDim.x * step) {
      WriteVec(parts.receive[own] + at, parts.send_bytes[own] - at,
               ReadVec(parts.send[own] + at, parts.send_bytes[own] - at));
    }
  }
  uint32_t told = 0, expected = 0;  // of this thread's peer
#pragma unroll
  for (int p = 0; p < kRanks; ++p) {
    if (p != static_cast<int>(threadIdx.x)) continue;
    told = PeerSignature(operation, parts.send_bytes[p]);
    expected = PeerSignature(operation, parts.receive_bytes[p]);
  }
  for (int64_t segment = blockIdx.x;; segment += group.shape.lanes) {
    uint32_t peers = 0;
#pragma unroll
    for (int p = 0; p < kRanks; ++p) {
      const int64_t larger = LargerOf(parts, p);
      if (p == own || segment >= PeerSegments(group.shape, larger)) continue;
      peers |= 1u << p;
      const PeerStretch part =
          SegmentOf(0, parts.send_bytes[p], segment, PeerSegmentBytes(group.shape, larger));
      for (int64_t at = first; at < part.bytes; at += step) {
        simt::PeerStore(lane.Outbox(p) + at,
                        ReadVec(parts.send[p] + part.begin + at, part.bytes - at));
      }
    }
    if (peers == 0) break;
    if (!lane.Meet(peers, told, expected)) return;
#pragma unroll
    for (int p = 0; p < kRanks; ++p) {
      if ((peers >> p & 1u) == 0) continue;
      const PeerStretch part = SegmentOf(0, parts.receive_bytes[p], segment,
                                         PeerSegmentBytes(group.shape, LargerOf(parts, p)));
      for (int64_t at = first; at < part.bytes; at += step) {
        WriteVec(parts.receive[p] + part.begin + at, part.bytes - at,
                 simt::PeerLoad<uint4>(lane.Inbox(p) + at));
      }
    }
  }
  lane.Close();
}

}  // namespace skein::engine
