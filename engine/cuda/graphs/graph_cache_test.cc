#include "engine/cuda/graphs/graph_cache.h"

#include <memory>

#include "gtest/gtest.h"

namespace skein::engine {
namespace {

class CountedGraph final : public RecordedGraph {
 public:
  explicit CountedGraph(int* alive) : alive_(alive) { ++*alive_; }
  ~CountedGraph() override { --*alive_; }
  absl::Status Launch() override { return absl::OkStatus(); }

 private:
  int* const alive_;
};

TEST(GraphCache, IsWarmFromTheSecondTime) {
  GraphCache cache(4);
  EXPECT_FALSE(cache.IsWarm(8));
  EXPECT_TRUE(cache.IsWarm(8));
  EXPECT_FALSE(cache.IsWarm(16));
  EXPECT_EQ(cache.Find(8), nullptr);
}

TEST(GraphCache, LetsTheLeastRecentlyUsedGo) {
  int alive = 0;
  GraphCache cache(2);
  const auto put = [&](int64_t rows) {
    cache.IsWarm(rows);
    return cache.Put(rows, std::make_unique<CountedGraph>(&alive));
  };
  RecordedGraph* one = put(1);
  put(2);
  EXPECT_EQ(cache.Find(1), one);  // now 2 is the older
  put(4);
  EXPECT_EQ(cache.Find(2), nullptr);
  EXPECT_EQ(cache.Find(1), one);
  EXPECT_NE(cache.Find(4), nullptr);
  EXPECT_EQ(cache.graphs(), 2u);
  EXPECT_EQ(cache.evictions(), 1);
  EXPECT_EQ(alive, 2);
  EXPECT_TRUE(cache.IsWarm(2));
  put(2);  // again; 1 goes
  EXPECT_EQ(cache.Find(1), nullptr);
  EXPECT_EQ(alive, 2);
}

}  // namespace
}  // namespace skein::engine
