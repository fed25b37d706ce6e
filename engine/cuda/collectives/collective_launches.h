// Launches of the collectives' kernels, for any rules of meeting (peer_lane.h). Included from .cu
// files and tests only.
#pragma once

#include <algorithm>

#include "engine/cuda/collectives/collective_kernels.h"
#include "engine/cuda/collectives/collectives.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {

enum PeerOperation : uint32_t { kPeerReduce = 1, kPeerGather, kPeerExchange };

// Calls run.template operator()<ranks>().
template <typename Run>
void WithPeerRanks(int ranks, const Run& run) {
  switch (ranks) {
    case 2:
      return run.template operator()<2>();
    case 3:
      return run.template operator()<3>();
    case 4:
      return run.template operator()<4>();
    case 5:
      return run.template operator()<5>();
    case 6:
      return run.template operator()<6>();
    case 7:
      return run.template operator()<7>();
    case 8:
      return run.template operator()<8>();
    default:
      SKEIN_CHECK_MSG(false, "a group of 2 to 8 ranks");
  }
}

inline dim3 PeerBlocks(const PeerShape& shape, int64_t segments) {
  return static_cast<unsigned>(std::min<int64_t>(shape.lanes, segments));
}

// Whole 16 bytes, so that a slice begins at an element and all but the last end at one.
constexpr int64_t PeerSliceBytes(int64_t bytes, int ranks) {
  const int64_t vecs = (bytes + kVecBytes - 1) / kVecBytes;
  return (vecs + ranks - 1) / ranks * kVecBytes;
}

template <class Rules, typename T>
void LaunchAllReduceOf(const PeerGroup& group, std::byte* data, int64_t bytes, uint32_t signature,
                       ReduceWay way, CudaStream stream) {
  const auto threads = static_cast<unsigned>(group.shape.threads);
  WithPeerRanks(group.ranks, [&]<int kRanks>() {
    if (way == ReduceWay::kOneShot) {
      simt::Launch(ReduceOneShot<T, kRanks, Rules>,
                   PeerBlocks(group.shape, PeerSegments(group.shape, bytes)), threads, 0, stream,
                   group, data, bytes, signature);
    } else {
      const int64_t slice = PeerSliceBytes(bytes, kRanks);
      simt::Launch(ReduceTwoShot<T, kRanks, Rules>,
                   PeerBlocks(group.shape, PeerSegments(group.shape, slice)), threads, 0, stream,
                   group, data, bytes, slice, signature);
    }
  });
}

template <class Rules>
void LaunchAllReduce(const PeerGroup& group, void* data, int64_t count, DType dtype, ReduceWay way,
                     CudaStream stream) {
  const int64_t bytes = count * static_cast<int64_t>(BytesOf(dtype));
  auto* const at = static_cast<std::byte*>(data);
  const uint32_t signature = PeerSignature(kPeerReduce, bytes * 4 + static_cast<int64_t>(dtype)) ^
                             (way == ReduceWay::kOneShot ? 1u : 0u);
  switch (dtype) {
    case DType::kF32:
      return LaunchAllReduceOf<Rules, float>(group, at, bytes, signature, way, stream);
    case DType::kBF16:
      return LaunchAllReduceOf<Rules, BF16>(group, at, bytes, signature, way, stream);
    case DType::kF16:
      return LaunchAllReduceOf<Rules, simt::Half>(group, at, bytes, signature, way, stream);
  }
}

template <class Rules>
void LaunchExchange(const PeerGroup& group, const PeerParts& parts, PeerOperation operation,
                    CudaStream stream) {
  int64_t segments = 1;
  for (int p = 0; p < group.ranks; ++p) {
    if (p == group.rank) continue;
    segments = std::max(
        segments, PeerSegments(group.shape, std::max(parts.send_bytes[p], parts.receive_bytes[p])));
  }
  WithPeerRanks(group.ranks, [&]<int kRanks>() {
    simt::Launch(ExchangeParts<kRanks, Rules>, PeerBlocks(group.shape, segments),
                 static_cast<unsigned>(group.shape.threads), 0, stream, group, parts,
                 static_cast<uint32_t>(operation));
  });
}

template <class Rules>
void LaunchAllGather(const PeerGroup& group, const void* send, int64_t bytes, void* receive,
                     CudaStream stream) {
  PeerParts parts;
  for (int p = 0; p < group.ranks; ++p) {
    parts.send[p] = static_cast<const std::byte*>(send);
    parts.receive[p] = static_cast<std::byte*>(receive) + p * bytes;
    parts.send_bytes[p] = parts.receive_bytes[p] = bytes;
  }
  LaunchExchange<Rules>(group, parts, kPeerGather, stream);
}

}  // namespace skein::engine
