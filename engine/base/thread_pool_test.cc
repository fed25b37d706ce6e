#include "engine/base/thread_pool.h"

#include <numeric>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace skein::engine {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, VisitsEveryIndexOnce) {
  ThreadPool pool(GetParam());
  for (const int64_t count : {0, 1, 2, 3, 7, 100, 1001}) {
    for (const int64_t grain : {1, 3, 50}) {
      std::vector<int> visits(static_cast<size_t>(count), 0);
      pool.ParallelFor(count, grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
      });
      EXPECT_EQ(visits, std::vector<int>(static_cast<size_t>(count), 1));
    }
  }
}

TEST_P(ThreadPoolTest, ManyRoundsInARow) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> sums(static_cast<size_t>(GetParam()), 0);
  for (int round = 0; round < 500; ++round) {
    pool.RunOnEach([&](int index) { sums[static_cast<size_t>(index)] += round; });
  }
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), int64_t{0}),
            int64_t{GetParam()} * 499 * 500 / 2);
}

TEST_P(ThreadPoolTest, IndexZeroIsTheCaller) {
  ThreadPool pool(GetParam());
  std::vector<std::thread::id> ids(static_cast<size_t>(GetParam()));
  pool.RunOnEach([&](int index) { ids[static_cast<size_t>(index)] = std::this_thread::get_id(); });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 5));

TEST(ThreadPool, ASmallLoopRunsInline) {
  ThreadPool pool(4);
  std::thread::id id;
  pool.ParallelFor(10, 10, [&](int64_t, int64_t) { id = std::this_thread::get_id(); });
  EXPECT_EQ(id, std::this_thread::get_id());
}

}  // namespace
}  // namespace skein::engine
