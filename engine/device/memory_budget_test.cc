#include "engine/device/memory_budget.h"

#include <string>

#include "engine/device/cpu_device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

constexpr size_t kPage = kDevicePageBytes;

TEST(BudgetedDevice, CountsWholePagesUntilTheyAreFreed) {
  const auto device =
      MakeBudgetedDevice(MakeCpuDevice(), std::make_shared<MemoryBudget>(4 * kPage));
  const auto small = device->Alloc(1);
  const auto large = device->Alloc(kPage + 1);
  ASSERT_TRUE(small.ok() && large.ok());
  EXPECT_EQ(device->MemoryInfo()->total_bytes, 4 * kPage);
  EXPECT_EQ(device->MemoryInfo()->free_bytes, kPage);
  device->Free(*large, kPage + 1);
  EXPECT_EQ(device->MemoryInfo()->free_bytes, 3 * kPage);
  device->Free(*small, 1);
  EXPECT_EQ(device->MemoryInfo()->free_bytes, 4 * kPage);
}

TEST(BudgetedDevice, MoreThanIsLeftIsRefusedWithTheNumbers) {
  const auto device =
      MakeBudgetedDevice(MakeCpuDevice(), std::make_shared<MemoryBudget>(2 * kPage));
  const auto first = device->Alloc(kPage);
  ASSERT_TRUE(first.ok());
  const absl::Status refused = device->Alloc(kPage + 1).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              ::testing::HasSubstr("wanted 4097 bytes, free are 4096 of a budget of 8192"));
  EXPECT_EQ(device->MemoryInfo()->free_bytes, kPage);
  device->Free(*first, kPage);
}

TEST(BudgetedDevice, WhatTheDeviceRefusesIsNotCounted) {
  const size_t much = size_t{1} << 60;
  const auto device = MakeBudgetedDevice(MakeCpuDevice(), std::make_shared<MemoryBudget>(much));
  EXPECT_TRUE(absl::IsResourceExhausted(device->Alloc(much).status()));
  EXPECT_EQ(device->MemoryInfo()->free_bytes, much);
}

TEST(BudgetedDevice, DevicesShareABudget) {
  const auto budget = std::make_shared<MemoryBudget>(2 * kPage);
  const auto one = MakeBudgetedDevice(MakeCpuDevice(), budget);
  const auto other = MakeBudgetedDevice(MakeCpuDevice(), budget);
  const auto memory = one->Alloc(2 * kPage);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(other->MemoryInfo()->free_bytes, 0u);
  EXPECT_TRUE(absl::IsResourceExhausted(other->Alloc(1).status()));
  one->Free(*memory, 2 * kPage);
}

}  // namespace
}  // namespace skein::engine
