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

  // Lets `worker` look at what comes, until its end.
  class Poller {
   public:
    explicit Poller(Worker* worker)
        : transport_(*worker->transport), thread_([this] {
            std::vector<TransferCompletion> none;
            while (!done_) transport_.Poll(1, 10ms, &none);
          }) {}
    ~Poller() {
      done_ = true;
      transport_.Wake();
      thread_.join();
    }

   private:
    Transport& transport_;
    std::atomic<bool> done_ = false;
    std::thread thread_;
  };

  std::array<Worker, 2> workers_;
};

TEST_F(SharedPlane, HandoffsAndCollectivesGoOnAtOnce) {
  constexpr int kRounds = 60;
  const std::vector<std::string> addresses = {workers_[0].fabric->Address(),
                                              workers_[1].fabric->Address()};
  const std::string target = workers_[1].Describe();
  const Poller polls(&workers_[1]);
  std::thread puts([&] { Put(&workers_[0], target, kRounds); });
  std::thread sums([&] { Sum(&workers_[1], {0, 1}, addresses, 1, kRounds); });
  Sum(&workers_[0], {0, 1}, addresses, 0, kRounds);
  sums.join();
  puts.join();
  EXPECT_EQ(workers_[1].by_rma.base[kBytes - 1], std::byte{kRounds});
  EXPECT_EQ(workers_[1].by_messages.base[0], std::byte{kRounds});
  for (const Worker& worker : workers_) EXPECT_EQ(worker.plane->peers(), 1u);
}

// A worker is named in rings that are given up before it opens them: each leaves it a message,
// which none of its calls takes.
TEST_F(SharedPlane, HandoffsGoOnBesideAFabricThatMakesNoCall) {
  const std::vector<std::string> addresses = {workers_[0].fabric->Address(),
                                              workers_[1].fabric->Address()};
  const Poller polls(&workers_[1]);
  const std::vector<std::byte> own(60'000);
  std::vector<std::byte> all(2 * own.size());
  const size_t rings = UcxPlane::kKeptBytesMax * 3 / 2 / own.size();
  for (uint64_t i = 0; i < rings; ++i) {
    const auto group = workers_[0].fabric->MakeGroup({2, i}, addresses, 0).value();
    const auto soon = std::chrono::steady_clock::now() + 1ms;
    ASSERT_TRUE(absl::IsDeadlineExceeded(group->AllGather(own, all, soon)));
  }
  Put(&workers_[0], workers_[1].Describe(), 1);
  EXPECT_EQ(workers_[1].by_messages.base[0], std::byte{1});
}

}  // namespace
}  // namespace skein::engine
