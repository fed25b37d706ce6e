#include "engine/cuda/collectives/collectives.h"

#include "engine/cuda/collectives/collective_launches.h"

namespace skein::engine {

void PeerAllReduce(const PeerGroup& group, void* data, int64_t count, DType dtype,
                   CudaStream stream) {
  const int64_t bytes = count * static_cast<int64_t>(BytesOf(dtype));
  LaunchAllReduce<PeerRules>(group, data, count, dtype, PeerReduceWay(bytes), stream);
}

void PeerAllGather(const PeerGroup& group, const void* send, int64_t bytes, void* receive,
                   CudaStream stream) {
  LaunchAllGather<PeerRules>(group, send, bytes, receive, stream);
}

void PeerAllToAll(const PeerGroup& group, std::span<const std::span<const std::byte>> send,
                  std::span<const std::span<std::byte>> receive, CudaStream stream) {
  const auto ranks = static_cast<size_t>(group.ranks);
  SKEIN_CHECK(send.size() == ranks && receive.size() == ranks);
  PeerParts parts;
  for (size_t p = 0; p < ranks; ++p) {
    parts.send[p] = send[p].data();
    parts.send_bytes[p] = static_cast<int64_t>(send[p].size());
    parts.receive[p] = receive[p].data();
    parts.receive_bytes[p] = static_cast<int64_t>(receive[p].size());
  }
  LaunchExchange<PeerRules>(group, parts, kPeerExchange, stream);
}

}  // namespace skein::engine
