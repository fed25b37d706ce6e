// How many KV blocks some memory holds.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/device/device.h"
#include "scheduler/vocabulary/kv_shape.h"

namespace skein::engine {

// Every layer's blocks have pages of their own. At most as many as there are ids and addresses for.
inline int64_t KvBlocksIn(int64_t bytes, const KvShape& kv) {
  constexpr auto kPage = static_cast<int64_t>(kDevicePageBytes);
  const int64_t of_layer = std::max<int64_t>(0, bytes) / kv.num_layers / kPage * kPage;
  const int64_t limit = (int64_t{1} << 48) / (kv.BlockBytes() * kv.num_layers);
  return std::min({of_layer / kv.BlockBytes(), limit, int64_t{INT32_MAX}});
}

// What so many blocks take of a device.
inline int64_t KvPageBytes(int64_t blocks, const KvShape& kv) {
  if (blocks == 0) return 0;
  return kv.num_layers *
         static_cast<int64_t>(DeviceBytes(static_cast<size_t>(blocks * kv.BlockBytes())));
}

}  // namespace skein::engine
