#include "engine/model/sharing/owners_reader.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <span>

namespace skein::engine {
namespace {

// Reads nothing.
class NoFile final : public FeedForwardReader {
 public:
  absl::Status Read(int, int64_t, std::span<std::byte>) override {
    return absl::NotFoundError("no such folder");
  }
};

TEST(OwnersReader, AnOwnerThatIsNotReachedIsNamedWithItsLayer) {
  OwnersReader reader({{}, {}, {}}, std::make_unique<NoFile>(), std::make_shared<ReadCounts>(6));
  std::byte to[8];
  const absl::Status failed = reader.Read(5, 0, to);
  EXPECT_TRUE(absl::IsUnavailable(failed));
  EXPECT_EQ(failed.message(),
            "owner 2 of layer 5 has ended or is not reached, and the checkpoint cannot be read: "
            "no such folder");
}

}  // namespace
}  // namespace skein::engine
