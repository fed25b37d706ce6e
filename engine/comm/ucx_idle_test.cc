// What a process that does not look at its messages costs the others.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/ucx_fabric.h"

namespace skein::engine {
namespace {

using std::chrono::milliseconds;

// How often this thread went to sleep by itself.
int64_t Sleeps() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

std::unique_ptr<Fabric> Make() {
  auto fabric = MakeUcxFabric({.tls = "self,shm"});
  EXPECT_TRUE(fabric.ok()) << fabric.status();
  return *std::move(fabric);
}

absl::Status Gather(Fabric* fabric, GroupId id, const std::vector<std::string>& addresses, int rank,
                    milliseconds limit) {
  auto group = fabric->MakeGroup(id, addresses, rank);
  if (!group.ok()) return group.status();
  std::vector<std::byte> all(2);
  return (*group)->AllGather({&all[static_cast<size_t>(rank)], 1}, all,
                             std::chrono::steady_clock::now() + limit);
}

// An idle rank was told of more groups than its queue has room for, and UCX cannot be armed. A call
// that waits for a third one sleeps between looks nevertheless.
TEST(UcxIdle, WhoWaitsBesideAnIdleRankSleeps) {
  const auto busy = Make();
  const auto idle = Make();
  const auto late = Make();
  const std::vector<std::string> with_idle = {busy->Address(), idle->Address()};
  constexpr auto kLong = milliseconds(60000);
  std::thread met([&] { EXPECT_TRUE(Gather(idle.get(), {0, 1}, with_idle, 1, kLong).ok()); });
  EXPECT_TRUE(Gather(busy.get(), {0, 1}, with_idle, 0, kLong).ok());
  met.join();
  for (uint64_t i = 0; i < 200; ++i) {
    auto group = busy->MakeGroup({1, i}, with_idle, 0);
    ASSERT_TRUE(group.ok()) << group.status();
    (*group)->Abort(absl::UnavailableError("never mind"));
  }
  const std::vector<std::string> with_late = {busy->Address(), late->Address()};
  EXPECT_FALSE(Gather(busy.get(), {2, 1}, with_late, 0, milliseconds(1)).ok());
  const int64_t before = Sleeps();
  EXPECT_FALSE(Gather(busy.get(), {2, 2}, with_late, 0, milliseconds(3000)).ok());
  EXPECT_GT(Sleeps() - before, 20);  // some 1,500 where it gets a core at once
}

}  // namespace
}  // namespace skein::engine
