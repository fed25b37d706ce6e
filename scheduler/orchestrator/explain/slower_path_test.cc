#include "scheduler/orchestrator/explain/slower_path.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

using Reasons = std::vector<Degraded>;

TEST(SlowerPath, SharedMemoryAndTheLinksOfDevicesAreTheFastest) {
  for (const char* transport : {"mapped+ring", "cuda-ipc", "rc_mlx5"}) {
    const HandoffPath path{.path = "direct", .transport = transport};
    EXPECT_EQ(SlowerBy(path), Reasons{}) << transport;
    EXPECT_EQ(WhySlower(path, "a", "b"), "") << transport;
  }
  EXPECT_EQ(SlowerBy({}), Reasons{}) << "an instance that tells nothing";
}

TEST(SlowerPath, TcpNamesTheNodes) {
  const HandoffPath path{.path = "direct", .transport = "tcp/eth0"};
  EXPECT_EQ(SlowerBy(path), Reasons{Degraded::kHandoffTcp});
  EXPECT_EQ(WhySlower(path, "a", "b"),
            "over TCP: the instances are on different nodes (a and b), and UCX found nothing "
            "faster between them");
  const std::string on_one_host =
      "over TCP: the two processes share no memory: UCX_TLS of one lacks shm, or they do not "
      "share /dev/shm";
  EXPECT_EQ(WhySlower(path, "a", "a"), on_one_host);
}

TEST(SlowerPath, TheTransportsOwnRefusalComesBeforeAGuess) {
  const HandoffPath path{.path = "host-staged",
                         .transport = "mapped+ring (not cuda-ipc: no peer access)"};
  EXPECT_EQ(SlowerBy(path), Reasons{Degraded::kHandoffHostMemory});
  EXPECT_EQ(WhySlower(path, "a", "a"), "through the host's memory: not cuda-ipc: no peer access");
}

TEST(SlowerPath, EachReasonCounts) {
  const HandoffPath path{.path = "host-staged", .transport = "tcp", .staging_buffer = true};
  EXPECT_EQ(SlowerBy(path), (Reasons{Degraded::kHandoffHostMemory, Degraded::kHandoffTcp,
                                     Degraded::kHandoffStagingBuffer}));
}

}  // namespace
}  // namespace skein::scheduler
