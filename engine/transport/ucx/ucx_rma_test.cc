#include "engine/transport/ucx/ucx_rma.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "engine/transport/testing/target.h"
#include "engine/transport/testing/testing_options.h"
#include "engine/transport/ucx/ucx_transport.h"

namespace skein::engine {
namespace {

using namespace std::chrono_literals;

constexpr char kByUcx[] = "ucx:self,posix";

// What UCX 1.13 prints of an endpoint, shortened.
std::string Info(const std::string& transport, const std::string& puts) {
  return "#                 lane[0]:  1:posix/memory.0 md[1]  -> md[1]/posix/sysdev[255] am "
         "am_bw#0\n"
         "#                 lane[1]:  4:" +
         transport +
         "/mlx5_0:1.0 md[4] -> md[4]/ib/sysdev[0] rma_bw#0\n"
         "#                 am_send: 0..<egr/short>..93..<rndv>..(inf)\n" +
         puts;
}

TEST(UcxRmaTest, OnlyReliableConnectionsThatPutAreTrulyRemote) {
  const std::string puts = "#                  put[1]: 0..<short>..220..<zcopy>..(inf)\n";
  EXPECT_TRUE(HasReliableLane(Info("rc_mlx5", puts)));
  EXPECT_TRUE(HasReliableLane(Info("rc_verbs", puts)));
  EXPECT_FALSE(HasReliableLane(Info("rc_mlx5", "")));
  EXPECT_FALSE(HasReliableLane(Info("rc_mlx5", "#   put[0]: 0..<short>..(inf)\n")));
  EXPECT_FALSE(HasReliableLane(Info("dc_mlx5", puts)));
  EXPECT_FALSE(HasReliableLane(Info("ud_mlx5", puts)));
  EXPECT_FALSE(HasReliableLane(""));
}

class Source {
 public:
  Source()
      : transport_(MakeUcxTransport(TestingOptions(kByUcx)).value()),
        memory_(transport_->Register(nullptr, 1 << 20).value()) {}

  void Connect(const std::string& description) { peer_ = transport_->Connect(description).value(); }
  void Disconnect() {
    EXPECT_TRUE(transport_->Disconnect(peer_.id).ok());
    Poll(1ms);  // takes the ends of what was under way
  }
  // Under the grant of the description, if it has one.
  absl::Status Post(size_t region, size_t bytes, std::chrono::milliseconds timeout) {
    const TransferPiece piece = {memory_.id, 0, peer_.regions.at(region), 0, bytes};
    return transport_->PostUnder(peer_.grant, peer_.id, TransferOp::kPut, {&piece, 1}, timeout)
        .status();
  }
  absl::Status Put(size_t region, const std::string& data, std::chrono::milliseconds timeout) {
    data.copy(reinterpret_cast<char*>(memory_.base), data.size());
    if (absl::Status posted = Post(region, data.size(), timeout); !posted.ok()) return posted;
    std::vector<TransferCompletion> ended;
    while (ended.empty()) transport_->Poll(1, 1s, &ended);
    return ended[0].status;
  }
  void Poll(std::chrono::milliseconds wait) {
    std::vector<TransferCompletion> none;
    transport_->Poll(64, wait, &none);
  }
  std::string transport() { return transport_->Inspect(peer_.id)->transport; }

 private:
  const std::unique_ptr<Transport> transport_;
  const Region memory_;
  Peer peer_;
};

TEST(UcxRmaTest, APutTakesNoPartOfTheTarget) {
  const auto target = SpawnProcessTarget(kByUcx);
  Source source;
  source.Connect(target->Describe());
  EXPECT_TRUE(source.Put(0, "once", 1min).ok());  // UCX completes the connection with it
  target->Stop();
  EXPECT_TRUE(source.Put(0, "while it stands still", 1min).ok());
  EXPECT_EQ(source.transport(), "rma+posix");
  target->Continue();
  EXPECT_EQ(target->Read(0, 0, 21), "while it stands still");
}

// It stood still, so that UCX could not confirm the puts when their connection was closed.
TEST(UcxRmaTest, ATargetGetsItsBlocksBackFromAConnectionThatWasCut) {
  const auto target = SpawnProcessTarget(kByUcx);
  const GrantId grant{1};
  Source source;
  const std::string later = target->Describe();
  source.Connect(target->DescribeUnder(grant));
  EXPECT_TRUE(source.Put(0, "once", 1min).ok());
  target->Stop();
  // More messages than it has room for; UCX's flush of the put waits behind them.
  for (int i = 0; i < 24; ++i) EXPECT_TRUE(source.Post(1, kTargetRegionBytes[1], 1min).ok());
  EXPECT_TRUE(source.Post(0, 1000, 1min).ok());
  for (int i = 0; i < 10; ++i) source.Poll(1ms);
  source.Disconnect();
  source.Connect(later);  // its first message is right behind that of the cut
  target->Continue();
  target->CloseGrant(grant);
  while (!target->IsClosed(grant)) source.Poll(1ms);
  EXPECT_TRUE(source.Put(0, "by RMA", 1min).ok());
  EXPECT_TRUE(source.Put(1, "by message", 1min).ok());
  EXPECT_EQ(target->Read(0, 0, 6), "by RMA");
  EXPECT_EQ(target->Read(1, 0, 10), "by message");
}

// Memory that UCX did not allocate is out of reach for its shared memory: UCX would emulate.
TEST(UcxRmaTest, WhatIsNotTrulyRemoteGoesByMessages) {
  const auto target = SpawnProcessTarget(kByUcx);
  Source source;
  source.Connect(target->Describe());
  EXPECT_TRUE(source.Put(1, "by message", 1min).ok());
  EXPECT_EQ(target->Read(1, 0, 10), "by message");
  target->Stop();
  EXPECT_FALSE(source.Put(1, "its word is missing", 100ms).ok());
  target->Continue();
}

}  // namespace
}  // namespace skein::engine
