#include "engine/cuda/device/deadline.h"

#include <condition_variable>
#include <mutex>

#include "gtest/gtest.h"

namespace skein::engine {
namespace {

TEST(Deadline, IsNothingToWhatEnds) { const Deadline deadline(std::chrono::hours(1), "too late"); }

void WaitForEver() {
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  never.wait(lock, [] { return false; });
}

TEST(DeadlineDeathTest, EndsTheProcessWithItsCause) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const Deadline deadline(std::chrono::milliseconds(1), "the kernel hangs");
        WaitForEver();
      },
      "the kernel hangs");
}

}  // namespace
}  // namespace skein::engine
