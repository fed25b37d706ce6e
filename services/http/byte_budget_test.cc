#include "services/http/byte_budget.h"

#include <gtest/gtest.h>

#include <vector>

namespace skein::services::http {
namespace {

constexpr size_t kMax = 4 << 20;

TEST(ByteBudgetTest, ALeaseGivesBackWhatItHolds) {
  const auto budget = std::make_shared<ByteBudget>(kMax);
  {
    ByteBudget::Lease lease(budget);
    EXPECT_TRUE(lease.Resize(1000));
    EXPECT_TRUE(lease.Resize(10));
    EXPECT_EQ(budget->held_bytes(), 10u);
    EXPECT_FALSE(lease.Resize(kMax + 1));
    EXPECT_EQ(budget->held_bytes(), 10u);
  }
  EXPECT_EQ(budget->held_bytes(), 0u);
  EXPECT_EQ(budget->refusals(), 1u);
}

TEST(ByteBudgetTest, LargeRequestsLeaveRoomForSmallOnes) {
  const auto budget = std::make_shared<ByteBudget>(kMax);
  ByteBudget::Lease large(budget), other(budget), small(budget);
  EXPECT_TRUE(large.Resize(kMax / 4 * 3));
  EXPECT_FALSE(other.Resize(ByteBudget::kSmallBytes + 1));
  EXPECT_TRUE(small.Resize(ByteBudget::kSmallBytes));
  EXPECT_FALSE(small.Resize(ByteBudget::kSmallBytes + 1));  // no longer small
  EXPECT_EQ(budget->held_bytes(), kMax / 4 * 3 + ByteBudget::kSmallBytes);
}

TEST(ByteBudgetTest, TheLargestLeaseIsWhatAnEmptyBudgetGives) {
  constexpr size_t kSmall = ByteBudget::kSmallBytes;
  for (const size_t bytes_max : {size_t{1}, kSmall / 2, kSmall, kSmall + kSmall / 4, kMax}) {
    const auto budget = std::make_shared<ByteBudget>(bytes_max);
    ByteBudget::Lease lease(budget);
    EXPECT_FALSE(lease.Resize(budget->LeaseBytesMax() + 1)) << bytes_max;
    EXPECT_TRUE(lease.Resize(budget->LeaseBytesMax())) << bytes_max;
  }
}

}  // namespace
}  // namespace skein::services::http
