// Peers that are gone are forgotten.
#include "engine/comm/ucx/ucx_peers.h"

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "engine/ucx/ucx_parts.h"

namespace skein::engine {
namespace {

using Parts = std::unique_ptr<UcxParts>;

// Nothing goes through UCX here.
class Nobody final : public PlaneUser {
 public:
  void OnMessage(std::span<const std::byte>) override {}
  void OnSent(void*, bool) override {}
  void OnKept() override {}
};

Parts MakeParts() { return Parts(new UcxParts(MakeUcxParts({.tls = "self,tcp"}).value())); }

class UcxPeersTest : public testing::Test {
 protected:
  ~UcxPeersTest() override { peers_.CloseAll(); }

  UcxPeer* Get(const Parts& other) { return peers_.Get(*OpenAddress(other->address)).value(); }
  void PollUntilOneIsLost() {
    while (!peers_.LoseEnded()) own_->tcp->Progress([](std::span<const std::byte>) {});
  }

  const Parts own_ = MakeParts();
  int deaths_ = 0;
  Nobody user_;
  UcxPeers peers_{
      own_->plane.get(),    &user_, nullptr, own_->tcp.get(), [](const UcxOperation&) {},
      [this] { ++deaths_; }};
};

TEST_F(UcxPeersTest, OneThatLivesStaysConnectedForLaterGroups) {
  const Parts other = MakeParts();
  UcxPeer* const peer = Get(other);
  EXPECT_EQ(Get(other), peer);
  peers_.Release(peer);
  peers_.Release(peer);
  EXPECT_EQ(peers_.size(), 1u);
  EXPECT_EQ(Get(other), peer);
  peers_.Release(peer);
}

TEST_F(UcxPeersTest, OneThatDiedIsForgottenWhenNoGroupHasIt) {
  for (int round = 1; round <= 20; ++round) {
    Parts other = MakeParts();
    UcxPeer* const peer = Get(other);
    ASSERT_EQ(Get(other), peer);
    other.reset();
    PollUntilOneIsLost();
    EXPECT_TRUE(peer->dead);
    peers_.Release(peer);
    EXPECT_EQ(peers_.size(), 1u) << "a group still has it";
    peers_.Release(peer);
    EXPECT_EQ(peers_.size(), 0u);
    EXPECT_EQ(deaths_, round);
  }
}

TEST_F(UcxPeersTest, OneThatDiesWhileNoGroupHasItIsForgottenAtOnce) {
  Parts other = MakeParts();
  peers_.Release(Get(other));
  EXPECT_EQ(peers_.size(), 1u);
  other.reset();
  PollUntilOneIsLost();
  EXPECT_EQ(peers_.size(), 0u);
}

}  // namespace
}  // namespace skein::engine
