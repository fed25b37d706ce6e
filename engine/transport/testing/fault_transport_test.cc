#include "engine/transport/testing/fault_transport.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "engine/transport/loopback_transport.h"
#include "engine/transport/testing/target.h"

namespace skein::engine {
namespace {

using namespace std::chrono_literals;

class FaultTransportTest : public testing::Test {
 protected:
  FaultTransportTest()
      : fabric_(MakeLoopbackFabric()),
        target_(MakeLoopbackTransport(fabric_)),
        transport_(MakeLoopbackTransport(fabric_), [this](uint64_t, PeerId) { return fault_; }) {
    memory_ = *transport_.Register(nullptr, 4096);
    std::memset(memory_.base, 'x', 4096);
    peer_ = *transport_.Connect(target_.Describe());
  }

  absl::StatusOr<TransferId> Post(std::chrono::nanoseconds timeout = 1min) {
    const TransferPiece pieces[] = {{memory_.id, 0, peer_.regions[0], 0, 100},
                                    {memory_.id, 200, peer_.regions[0], 200, 100}};
    return transport_.Post(peer_.id, TransferOp::kPut, pieces, timeout);
  }

  TransferCompletion End(TransferId id) {
    std::vector<TransferCompletion> out;
    EXPECT_EQ(transport_.Poll(5, 1min, &out), 1u);
    EXPECT_EQ(out.at(0).id, id);
    return out.at(0);
  }

  TransferFault fault_;
  std::shared_ptr<LoopbackFabric> fabric_;
  InProcessTarget target_;
  FaultTransport transport_;
  Region memory_;
  Peer peer_;
};

TEST_F(FaultTransportTest, DelayHoldsTheCompletionBack) {
  fault_ = {TransferFault::kDelay, 3};
  auto id = Post();
  std::vector<TransferCompletion> out;
  int polls = 0;
  while (out.empty()) {
    transport_.Poll(1, 0ns, &out);
    ++polls;
  }
  EXPECT_GT(polls, 3);
  EXPECT_EQ(out[0].id, *id);
  EXPECT_TRUE(out[0].status.ok());
  EXPECT_EQ(target_.Read(0, 200, 100), std::string(100, 'x'));
}

TEST_F(FaultTransportTest, DropMovesNothing) {
  fault_ = {TransferFault::kDrop};
  EXPECT_TRUE(absl::IsUnavailable(End(*Post()).status));
  EXPECT_EQ(target_.Read(0, 0, 100), std::string(100, '\0'));
}

TEST_F(FaultTransportTest, PartialMovesTheFirstHalf) {
  fault_ = {TransferFault::kPartial};
  EXPECT_TRUE(absl::IsUnavailable(End(*Post()).status));
  EXPECT_EQ(target_.Read(0, 0, 100), std::string(100, 'x'));
  EXPECT_EQ(target_.Read(0, 200, 100), std::string(100, '\0'));
}

TEST_F(FaultTransportTest, StallEndsInTheTimeoutOrByCancel) {
  fault_ = {TransferFault::kStall};
  EXPECT_TRUE(absl::IsDeadlineExceeded(End(*Post(20ms)).status));
  auto id = Post();
  transport_.Cancel(*id);
  EXPECT_TRUE(absl::IsCancelled(End(*id).status));
}

TEST_F(FaultTransportTest, AKilledPeerStaysDeadUntilConnected) {
  auto id = Post();
  transport_.KillPeer(peer_.id);
  EXPECT_TRUE(absl::IsUnavailable(End(*id).status));
  EXPECT_TRUE(absl::IsUnavailable(Post().status()));
  EXPECT_TRUE(transport_.Inspect(peer_.id)->broken);
  peer_ = *transport_.Connect(target_.Describe());
  id = Post();
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_TRUE(End(*id).status.ok());
}

}  // namespace
}  // namespace skein::engine
