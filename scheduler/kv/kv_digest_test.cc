#include "scheduler/kv/kv_digest.h"

#include <set>

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

HandoffShape Shape() {
  return {{.num_layers = 2, .kv_heads = 4, .head_dim = 16, .block_tokens = 8, .dtype = DType::kF32},
          "abc"};
}

TEST(KvDigestTest, EveryFieldOfTheShapeMatters) {
  std::set<uint64_t> digests = {KvDigest(Shape())};
  const auto differs = [&](auto change) {
    HandoffShape other = Shape();
    change(other);
    return digests.insert(KvDigest(other)).second;
  };
  EXPECT_TRUE(differs([](HandoffShape& s) { s.kv_format = 9; }));
  EXPECT_TRUE(differs([](HandoffShape& s) { s.model_hash = "abd"; }));
  EXPECT_TRUE(differs([](HandoffShape& s) { s.dtype = DType::kF16; }));
  EXPECT_TRUE(differs([](HandoffShape& s) { s.layout.tp = 2; }));
  EXPECT_TRUE(differs([](HandoffShape& s) { s.block_tokens = 16; }));
  EXPECT_TRUE(differs([](HandoffShape& s) { s.num_layers = 4; }));
  EXPECT_TRUE(differs([](HandoffShape& s) { s.kv_heads = 2; }));
  EXPECT_TRUE(differs([](HandoffShape& s) { s.head_dim = 8; }));
  EXPECT_FALSE(differs([](HandoffShape&) {})) << "the same shape";
}

// Workers of other versions tell it: a change would keep them apart.
TEST(KvDigestTest, ItsValueNeverChanges) { EXPECT_EQ(KvDigest(Shape()), 0x3a56237b2e7d5398u); }

}  // namespace
}  // namespace skein::scheduler
