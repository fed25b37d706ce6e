// What a process that has nothing to do costs the others, and itself.
#include <gtest/gtest.h>
#include <time.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "engine/comm/ucx_fabric.h"

namespace skein::engine {
namespace {

using std::chrono::milliseconds;

double Seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::unique_ptr<Fabric> Make() {
  auto fabric = MakeUcxFabric({.tls = "self,shm"});
  EXPECT_TRUE(fabric.ok()) << fabric.status();
  return *std::move(fabric);
}

// An idle rank is told of more groups than its queue has room for. A call that waits for a third
// one meanwhile sleeps; and the idle rank takes in what it was told.
TEST(UcxIdle, WhoWaitsBesideAnIdleRankSleeps) {
  const auto busy = Make();
  const auto idle = Make();
  const auto late = Make();
  const std::vector<std::string> with_idle = {busy->Address(), idle->Address()};
  for (uint64_t i = 0; i < 1000; ++i) {
    auto group = busy->MakeGroup({1, i}, with_idle, 0);
    ASSERT_TRUE(group.ok()) << group.status();
    (*group)->Abort(absl::UnavailableError("never mind"));
  }
  const std::vector<std::string> with_late = {busy->Address(), late->Address()};
  auto group = busy->MakeGroup({2, 1}, with_late, 0);
  ASSERT_TRUE(group.ok()) << group.status();
  const double begin_s = Seconds(CLOCK_MONOTONIC);
  const double begin_cpu_s = Seconds(CLOCK_PROCESS_CPUTIME_ID);
  std::vector<std::byte> all(2);
  const auto status = (*group)->AllGather({all.data(), 1}, all,
                                          std::chrono::steady_clock::now() + milliseconds(1500));
  EXPECT_FALSE(status.ok());
  const double waited_s = Seconds(CLOCK_MONOTONIC) - begin_s;
  EXPECT_LT(Seconds(CLOCK_PROCESS_CPUTIME_ID) - begin_cpu_s, 0.5 * waited_s);
}

}  // namespace
}  // namespace skein::engine
