// What a process that does not look at its messages costs the others.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/ucx/ucx_fabric.h"
#include "engine/host/ring.h"

namespace skein::engine {
namespace {

using std::chrono::milliseconds;

// What this thread has computed so far.
milliseconds CpuTime() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  const auto of = [](const timeval& time) {
    return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
  };
  return std::chrono::duration_cast<milliseconds>(of(usage.ru_utime) + of(usage.ru_stime));
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

// An idle rank was told of more groups than the ring to it has room for. A call that waits for a
// third one sleeps nevertheless.
TEST(UcxIdle, WhoWaitsBesideAnIdleRankSleeps) {
  const auto busy = Make();
  const auto idle = Make();
  const auto late = Make();
  const std::vector<std::string> with_idle = {busy->Address(), idle->Address()};
  constexpr auto kLong = milliseconds(60000);
  std::thread met([&] { EXPECT_TRUE(Gather(idle.get(), {0, 1}, with_idle, 1, kLong).ok()); });
  EXPECT_TRUE(Gather(busy.get(), {0, 1}, with_idle, 0, kLong).ok());
  met.join();
  for (uint64_t i = 0; i < 2 * kRingBytes / 64; ++i) {
    auto group = busy->MakeGroup({1, i}, with_idle, 0);
    ASSERT_TRUE(group.ok()) << group.status();
    (*group)->Abort(absl::UnavailableError("never mind"));
  }
  const std::vector<std::string> with_late = {busy->Address(), late->Address()};
  EXPECT_FALSE(Gather(busy.get(), {2, 1}, with_late, 0, milliseconds(1)).ok());
  const auto before = CpuTime();
  EXPECT_FALSE(Gather(busy.get(), {2, 2}, with_late, 0, milliseconds(3000)).ok());
  EXPECT_LT((CpuTime() - before).count(), 300);
}

}  // namespace
}  // namespace skein::engine
