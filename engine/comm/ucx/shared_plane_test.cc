// A process's handoffs and collectives over one plane of UCX, at the same time.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/ucx/ucx_fabric.h"
#include "engine/transport/ucx/ucx_transport.h"

namespace skein::engine {
namespace {

using namespace std::chrono_literals;

constexpr size_t kBytes = 1 << 20;

// What a worker has.
struct Worker {
  std::vector<std::byte> caller_memory = std::vector<std::byte>(kBytes);
  const UcxOptions options = {.tls = "self,posix", .own_wires = false};
  const std::shared_ptr<UcxPlane> plane = UcxPlane::Make(options).value();
  const std::unique_ptr<Transport> transport =
      MakeUcxTransport(options, nullptr, nullptr, plane).value();
  const std::unique_ptr<Fabric> fabric = MakeUcxFabric(options, plane).value();
  // Written by ucp_put, and by messages.
  const Region by_rma = transport->Register(nullptr, kBytes).value();
  const Region by_messages = transport->Register(caller_memory.data(), kBytes).value();

  std::string Describe() const {
    const std::array<RegionId, 2> regions = {by_rma.id, by_messages.id};
    return transport->Describe(regions).value();
  }
};

class SharedPlane : public testing::Test {
 protected:
  // Puts all of its memory to the other's, so many times.
  static void Put(Worker* from, const std::string& to, int rounds) {
    const Peer peer = from->transport->Connect(to).value();
    for (int round = 1; round <= rounds; ++round) {
      std::fill_n(from->by_rma.base, kBytes, static_cast<std::byte>(round));
      for (const RegionId region : peer.regions) {
        const TransferPiece piece = {from->by_rma.id, 0, region, 0, kBytes};
        ASSERT_TRUE(from->transport->Post(peer.id, TransferOp::kPut, {&piece, 1}, 60s).ok());
      }
      std::vector<TransferCompletion> ended;
      while (ended.size() < peer.regions.size()) from->transport->Poll(2, 1s, &ended);
      for (const TransferCompletion& end : ended) ASSERT_TRUE(end.status.ok()) << end.status;
    }
    ASSERT_TRUE(from->transport->Disconnect(peer.id).ok());
  }
  static void Sum(Worker* worker, GroupId id, const std::vector<std::string>& addresses, int rank,
                  int rounds) {
    const auto group = worker->fabric->MakeGroup(id, addresses, rank).value();
    for (int round = 0; round < rounds; ++round) {
      std::vector<float> values(50'000, static_cast<float>(round + rank));
      const auto until = std::chrono::steady_clock::now() + 60s;
      const absl::Status summed =
          group->AllReduce(values.data(), static_cast<int64_t>(values.size()), DType::kF32, until);
      ASSERT_TRUE(summed.ok()) << summed;
      for (const float value : values) ASSERT_EQ(value, static_cast<float>(2 * round + 1));
    }
  }

  std::array<Worker, 2> workers_;
};

TEST_F(SharedPlane, HandoffsAndCollectivesGoOnAtOnce) {
  constexpr int kRounds = 60;
  const std::vector<std::string> addresses = {workers_[0].fabric->Address(),
                                              workers_[1].fabric->Address()};
  const std::string target = workers_[1].Describe();
  std::atomic<bool> done = false;
  std::thread polls([&] {
    std::vector<TransferCompletion> none;
    while (!done) workers_[1].transport->Poll(1, 10ms, &none);
  });
  std::thread puts([&] { Put(&workers_[0], target, kRounds); });
  std::thread sums([&] { Sum(&workers_[1], {0, 1}, addresses, 1, kRounds); });
  Sum(&workers_[0], {0, 1}, addresses, 0, kRounds);
  sums.join();
  puts.join();
  done = true;
  workers_[1].transport->Wake();
  polls.join();
  EXPECT_EQ(workers_[1].by_rma.base[kBytes - 1], std::byte{kRounds});
  EXPECT_EQ(workers_[1].by_messages.base[0], std::byte{kRounds});
  for (const Worker& worker : workers_) EXPECT_EQ(worker.plane->peers(), 1u);
}

}  // namespace
}  // namespace skein::engine
