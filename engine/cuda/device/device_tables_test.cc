#include "engine/cuda/device/device_tables.h"

#include <cstring>
#include <vector>

#include "engine/device/cpu_device.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

std::span<const std::byte> Bytes(const std::vector<int>& values) {
  return std::as_bytes(std::span(values));
}

TEST(DeviceTables, SendsContentsOnce) {
  DeviceTables tables(MakeCpuDevice());
  const std::vector<int> a = {1, 2, 3}, b = {1, 2, 4}, longer = {1, 2, 3, 4};
  const std::byte* first = tables.Get(Bytes(a));
  EXPECT_EQ(std::memcmp(first, a.data(), 12), 0);
  EXPECT_NE(tables.Get(Bytes(b)), first);
  EXPECT_NE(tables.Get(Bytes(longer)), first);
  EXPECT_EQ(tables.Get(Bytes(a)), first);
  EXPECT_EQ(tables.copies(), 3);
}

TEST(DeviceTables, TheLeastRecentlyUsedMakesRoom) {
  DeviceTables tables(MakeCpuDevice());
  for (int i = 0; i < static_cast<int>(DeviceTables::kSlots); ++i) tables.Get(Bytes({i}));
  tables.Get(Bytes({0}));
  const int64_t copies = tables.copies();
  tables.Get(Bytes({100}));  // in the place of 1
  tables.Get(Bytes({0}));
  EXPECT_EQ(tables.copies(), copies + 1);
  tables.Get(Bytes({1}));
  EXPECT_EQ(tables.copies(), copies + 2);
}

TEST(DeviceTables, GrowsWithItsContents) {
  DeviceTables tables(MakeCpuDevice());
  std::vector<int> values(100000, 7);
  const std::byte* table = tables.Get(Bytes(values));
  EXPECT_EQ(std::memcmp(table, values.data(), values.size() * sizeof(int)), 0);
}

}  // namespace
}  // namespace skein::engine
