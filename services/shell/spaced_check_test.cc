#include "services/shell/spaced_check.h"

#include "gtest/gtest.h"

namespace skein::services {
namespace {

TEST(SpacedCheck, IsMadeOnceASecondAndItsResultStands) {
  SpacedCheck check;
  EXPECT_TRUE(check.last().ok());
  int made = 0;
  const auto fail = [&made] {
    ++made;
    return absl::InternalError("violated");
  };
  EXPECT_FALSE(check.Run(5, fail).ok());
  EXPECT_FALSE(check.Run(5 + SpacedCheck::kSpacingUs - 1, [] { return absl::OkStatus(); }).ok());
  EXPECT_FALSE(check.last().ok());
  EXPECT_TRUE(check.Run(5 + SpacedCheck::kSpacingUs, [] { return absl::OkStatus(); }).ok());
  EXPECT_TRUE(check.last().ok());
  EXPECT_EQ(made, 1);
}

}  // namespace
}  // namespace skein::services
