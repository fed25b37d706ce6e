// The messages of the UCX fabric. Internal to engine/comm. Ranks of one group run the same binary
// on machines of one byte order, so a header travels as it lies in memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/comm/algorithms/link.h"
#include "engine/comm/group_digest.h"

namespace skein::engine {

// A longer message is sent only after its receiver said that it is ready, so it is never kept.
inline constexpr size_t kEagerBytesMax = 64 << 10;

enum class WireKind : uint32_t {
  kData = 1,  // bytes of message `index` from `offset` on; they follow the header
  kOffer,     // message `index`, longer than kEagerBytesMax, waits for its kReady
  kReady,     // the sender of this waits for message `index` of the reader, of `bytes`
  kAbort,     // the group is broken; the reason's text follows, `bytes` is its code
  kLeave,     // the rank left after `index` messages to the reader
};

struct WireHeader {
  GroupDigest group;
  WireKind kind = WireKind::kData;
  uint32_t from = 0;   // rank
  uint64_t index = 0;  // counts the messages of an ordered pair of ranks
  uint64_t bytes = 0;  // of the whole message
  uint64_t offset = 0;
  Signature signature = 0;
};

}  // namespace skein::engine
