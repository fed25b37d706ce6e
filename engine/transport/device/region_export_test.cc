#include "engine/transport/device/region_export.h"

#include <gtest/gtest.h>

#include <cstring>

namespace skein::engine {
namespace {

RegionExport Example() {
  RegionExport region{
      {.process = 1, .allocation = 2, .allocation_bytes = 5000, .offset = 1000}, 7000, 4000};
  std::memset(region.place.handle, 9, sizeof region.place.handle);
  return region;
}

TEST(RegionExport, IsCutOffAsItWasAppended) {
  for (const std::string before : {"", "eight by"}) {
    std::string key = before;
    AppendExport(Example(), &key);
    const auto taken = TakeExport(&key);
    ASSERT_TRUE(taken.has_value());
    EXPECT_EQ(key, before);
    const RegionExport example = Example();
    EXPECT_EQ(std::memcmp(&taken->place, &example.place, sizeof(PeerPlace)), 0);
    EXPECT_EQ(taken->address, 7000u);
    EXPECT_EQ(taken->bytes, 4000u);
  }
}

TEST(RegionExport, OtherKeysStayAsTheyAre) {
  std::string sealed;
  AppendExport(Example(), &sealed);
  for (std::string key : {std::string(), std::string("12345678"), std::string(500, 'x'),
                          sealed.substr(1), sealed.substr(0, sealed.size() - 1)}) {
    const std::string before = key;
    EXPECT_FALSE(TakeExport(&key).has_value());
    EXPECT_EQ(key, before);
  }
}

TEST(RegionExport, IsSoundOnlyAsWhatWasDescribedInsideItsAllocation) {
  EXPECT_TRUE(IsSound(Example(), 7000, 4000));
  EXPECT_FALSE(IsSound(Example(), 7000, 4001));  // a description that promises more
  EXPECT_FALSE(IsSound(Example(), 7001, 4000));
  RegionExport region = Example();
  region.bytes = 4001;  // over the end
  EXPECT_FALSE(IsSound(region, 7000, 4001));
  region = Example();
  region.place.offset = 5001;
  EXPECT_FALSE(IsSound(region, 7000, 4000));
  region = Example();
  region.bytes = UINT64_MAX - 500;
  EXPECT_FALSE(IsSound(region, 7000, UINT64_MAX - 500));
}

}  // namespace
}  // namespace skein::engine
