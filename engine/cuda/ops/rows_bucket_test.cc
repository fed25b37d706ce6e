#include "engine/cuda/ops/rows_bucket.h"

#include <set>

#include "gtest/gtest.h"

namespace skein::engine {
namespace {

TEST(RowsBucket, SkinnyGemmsShareOne) {
  for (int64_t rows = 1; rows <= kSkinnyRowsMax; ++rows)
    EXPECT_EQ(RowsBucket(rows), kSkinnyRowsMax);
}

TEST(RowsBucket, NamesItsLargestCount) {
  EXPECT_EQ(RowsBucket(65), 80);
  EXPECT_EQ(RowsBucket(80), 80);
  EXPECT_EQ(RowsBucket(81), 96);
  EXPECT_EQ(RowsBucket(8192), 8192);
  EXPECT_EQ(RowsBucket(8193), 10240);
  for (int64_t rows = 65; rows < 100000; ++rows) {
    const int64_t bucket = RowsBucket(rows);
    EXPECT_GE(bucket, rows);
    EXPECT_LT(bucket, rows + rows / 4 + 1);
    EXPECT_EQ(RowsBucket(bucket), bucket);
  }
}

TEST(RowsBucket, IsOneOfFew) {
  std::set<int64_t> buckets;
  for (int64_t rows = 1; rows <= 1 << 20; ++rows) buckets.insert(RowsBucket(rows));
  EXPECT_EQ(buckets.size(), 1u + 4 * 14);
}

}  // namespace
}  // namespace skein::engine
