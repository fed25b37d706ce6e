#include "engine/transport/ucx/stream_copy.h"

#include <gtest/gtest.h>

#include <vector>

namespace skein::engine {
namespace {

// Every alignment of both sides, and lengths around the lines' ends.
TEST(StreamCopy, CopiesTheseBytesAndNoOthers) {
  std::vector<std::byte> from(512);
  for (size_t i = 0; i < from.size(); ++i) from[i] = std::byte(i * 7 + i / 256);
  for (size_t to_offset = 0; to_offset < 64; ++to_offset) {
    for (size_t from_offset : {0, 1, 8, 63}) {
      for (size_t bytes : {0, 1, 15, 16, 63, 64, 65, 127, 128, 200, 300}) {
        std::vector<std::byte> to(512, std::byte{0xaa});
        std::vector<std::byte> expected = to;
        std::copy_n(from.begin() + from_offset, bytes, expected.begin() + to_offset);
        StreamAhead(from.data() + from_offset);
        StreamCopy(to.data() + to_offset, from.data() + from_offset, bytes);
        StreamFence();
        ASSERT_TRUE(to == expected) << to_offset << " " << from_offset << " " << bytes;
      }
    }
  }
}

}  // namespace
}  // namespace skein::engine
