#include "engine/comm/ucx/early_groups.h"

#include <gtest/gtest.h>

#include <vector>

#include "absl/status/status.h"

namespace skein::engine {
namespace {

WireHeader Data(uint64_t group, uint64_t index) {
  return {.group = {group, 0}, .kind = WireKind::kData, .from = 1, .index = index};
}

TEST(EarlyGroupsTest, KeepsInOrderAndGivesOnce) {
  EarlyGroups early;
  const std::vector<std::byte> text(3, std::byte{7});
  for (uint64_t i = 0; i < 4; ++i) early.Keep(Data(1, i), text);
  early.Keep(Data(2, 0), {});
  const auto kept = early.Take({1, 0});
  ASSERT_EQ(kept.size(), 4u);
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(kept[i].header.index, i);
    EXPECT_EQ(kept[i].data, text);
  }
  EXPECT_TRUE(early.Take({1, 0}).empty());
  EXPECT_EQ(early.Take({2, 0}).size(), 1u);
}

TEST(EarlyGroupsTest, AnAbortIsAllThatIsKeptOfAGroup) {
  EarlyGroups early;
  early.Keep(Data(1, 0), std::vector<std::byte>(100));
  WireHeader abort = Data(1, 0);
  abort.kind = WireKind::kAbort;
  early.Keep(abort, {});
  early.Keep(Data(1, 1), std::vector<std::byte>(100));
  const auto kept = early.Take({1, 0});
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].header.kind, WireKind::kAbort);
}

// Messages without bytes (a collective's that only meets) take room, too.
TEST(EarlyGroupsTest, EmptyMessagesAreBoundedToo) {
  constexpr size_t kRoom = 10;
  EarlyGroups early(kRoom * sizeof(EarlyGroups::Message));
  for (uint64_t i = 0; i < kRoom; ++i) early.Keep(Data(1, i), {});
  EXPECT_EQ(early.Take({1, 0}).size(), kRoom);
  for (uint64_t i = 0; i < 2 * kRoom; ++i) early.Keep(Data(2, i), {});
  const auto kept = early.Take({2, 0});
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].header.kind, WireKind::kAbort);
  EXPECT_EQ(kept[0].header.bytes, static_cast<uint64_t>(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace skein::engine
