#include "scheduler/base/held_digest.h"

#include <gtest/gtest.h>

#include <set>

namespace skein::scheduler {
namespace {

TEST(HeldDigest, IsThatOfASetInAnyOrder) {
  HeldDigest one;
  HeldDigest other;
  one.Add({7, 1}, {5});
  one.Add({7, 2}, {6});
  other.Add({7, 2}, {6});
  other.Add({7, 3}, {9});
  EXPECT_NE(one.value(), other.value());
  other.Remove({7, 3}, {9});
  other.Add({7, 1}, {5});
  EXPECT_EQ(one.value(), other.value());
  EXPECT_EQ(one.value(), DigestOf({{.id = {7, 2}, .epoch = {6}}, {.id = {7, 1}, .epoch = {5}}}));
  one.Remove({7, 1}, {5});
  one.Remove({7, 2}, {6});
  EXPECT_EQ(one.value(), 0u);
}

TEST(HeldDigest, EachPartOfAPairCounts) {
  std::set<uint64_t> values;
  for (uint64_t router = 0; router < 8; ++router) {
    for (uint64_t serial = 0; serial < 8; ++serial) {
      for (uint64_t epoch = 0; epoch < 8; ++epoch) {
        values.insert(DigestOf({{.id = {router, serial}, .epoch = {epoch}}}));
      }
    }
  }
  EXPECT_EQ(values.size(), 512u);
}

}  // namespace
}  // namespace skein::scheduler
