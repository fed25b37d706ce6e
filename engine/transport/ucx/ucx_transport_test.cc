// What is of the UCX transport alone.
#include "engine/transport/ucx/ucx_transport.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "engine/host/testing/no_descriptors_left.h"
#include "engine/transport/testing/target.h"
#include "engine/transport/testing/testing_options.h"

namespace skein::engine {
namespace {

using namespace std::chrono_literals;

class UcxTransport : public testing::Test {
 protected:
  UcxTransport() : memory_(*source_->Register(nullptr, 64)) {}

  void ExpectPutArrives(TestingTarget* target) {
    const auto peer = source_->Connect(target->Describe());
    ASSERT_TRUE(peer.ok()) << peer.status();
    const TransferPiece piece = {memory_.id, 0, peer->regions.at(1), 0, 1};
    memory_.base[0] ^= std::byte{1};
    ASSERT_TRUE(source_->Post(peer->id, TransferOp::kPut, {&piece, 1}, 60s).ok());
    std::vector<TransferCompletion> ended;
    ASSERT_EQ(source_->Poll(1, 60s, &ended), 1u);
    ASSERT_TRUE(ended[0].status.ok()) << ended[0].status;
    EXPECT_EQ(target->Read(1, 0, 1), std::string(1, static_cast<char>(memory_.base[0])));
    EXPECT_TRUE(source_->Disconnect(peer->id).ok());
  }

  const std::unique_ptr<Transport> source_ = *MakeUcxTransport({.tls = "self,shm"});
  const Region memory_;
};

// The target's region 0 is what its transport allocated, region 1 is not.
TEST(UcxTransportWays, SayWhyNothingFasterIsUsed) {
  const auto why = [](const std::string& tls) {
    const auto target = SpawnProcessTarget(tls);
    const auto source = MakeUcxTransport(TestingOptions(tls)).value();
    const Region memory = source->Register(nullptr, 64).value();
    const Peer peer = source->Connect(target->Describe()).value();
    EXPECT_EQ(source->Inspect(peer.id)->why_not_faster, "");
    const TransferPiece piece = {memory.id, 0, peer.regions.at(0), 0, 1};
    EXPECT_TRUE(source->Post(peer.id, TransferOp::kPut, {&piece, 1}, 60s).ok());
    std::vector<TransferCompletion> ended;
    while (ended.empty()) source->Poll(1, 60s, &ended);
    return source->Inspect(peer.id)->why_not_faster;
  };
  EXPECT_EQ(why("self,shm"), "some of its memory cannot be mapped here");
  EXPECT_EQ(why("ucx:self,posix"),
            "its memory cannot be mapped here: this process uses no shared memory");
  EXPECT_EQ(why("self,tcp"),
            "its memory cannot be mapped here: this process uses no shared memory; no RDMA device "
            "at either end");
}

// Descriptors, and memory that is shared with others.
struct Held {
  size_t descriptors = 0;
  size_t mappings = 0;
};

Held HeldNow() {
  Held held;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++held.descriptors;
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    for (const char* const name : {"memfd:", "/dev/shm", "SYSV"}) {
      if (line.find(name) != std::string::npos) ++held.mappings;
    }
  }
  return held;
}

void PutToOneThatDies(Transport* source, const Region& memory, const std::string& tls) {
  const auto target = SpawnProcessTarget(tls);
  const Peer peer = source->Connect(target->Describe()).value();
  const TransferPiece piece = {memory.id, 0, peer.regions.at(0), 0, 1};
  ASSERT_TRUE(source->Post(peer.id, TransferOp::kPut, {&piece, 1}, 60s).ok());
  std::vector<TransferCompletion> ended;
  while (ended.empty()) source->Poll(1, 60s, &ended);
  ASSERT_TRUE(ended[0].status.ok()) << ended[0].status;
  target->Kill();
  while (!source->Inspect(peer.id)->broken) source->Poll(1, 10ms, &ended);
  ASSERT_TRUE(source->Disconnect(peer.id).ok());
  source->Poll(1, 0ns, &ended);
}

TEST(UcxTransportPeers, ThatAreGoneLeaveNothingBehind) {
  for (const std::string tls : {"self,shm", "self,tcp", "ucx:self,posix"}) {
    const auto source = MakeUcxTransport(TestingOptions(tls)).value();
    const Region memory = source->Register(nullptr, 64).value();
    for (int i = 0; i < 2; ++i) PutToOneThatDies(source.get(), memory, tls);
    const Held before = HeldNow();
    for (int i = 0; i < 10; ++i) PutToOneThatDies(source.get(), memory, tls);
    // The end of the last one's socket may not have been seen yet. A leak hangs here.
    std::vector<TransferCompletion> none;
    const auto more = [&] {
      const Held now = HeldNow();
      return now.descriptors > before.descriptors || now.mappings > before.mappings;
    };
    while (more()) source->Poll(1, 10ms, &none);
  }
}

// It is seen, and no wire leads to it.
TEST_F(UcxTransport, TheDeathOfWhoCannotBeReachedIsNobodysBusiness) {
  const auto reached = SpawnProcessTarget("self,shm");
  const auto other = SpawnProcessTarget("self,tcp");
  EXPECT_FALSE(source_->Connect(other->Describe()).ok());
  other->Kill();
  std::vector<TransferCompletion> none;
  EXPECT_EQ(source_->Poll(1, 0ns, &none), 0u);
  ExpectPutArrives(reached.get());
}

// A process that cannot be reached through memory stands for one of another host.
TEST(UcxTransportPeers, OfOtherHostsAreRefusedByNameIfTheOptionsSaySo) {
  UcxOptions options = TestingOptions("self,shm");
  options.far_refused = "--require-encryption: why";
  const auto source = MakeUcxTransport(options).value();
  const auto other = SpawnProcessTarget("self,tcp");
  const absl::Status refused = source->Connect(other->Describe()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_NE(refused.message().find("--require-encryption: why"), std::string::npos) << refused;
  const auto here = SpawnProcessTarget("self,shm");
  EXPECT_TRUE(source->Connect(here->Describe()).ok()) << "through memory";
}

TEST_F(UcxTransport, ALackOfDescriptorsPasses) {
  const auto first = SpawnProcessTarget("self,shm"), second = SpawnProcessTarget("self,shm");
  const std::string description = second->Describe();
  ExpectPutArrives(first.get());
  {
    const NoDescriptorsLeft none;
    EXPECT_TRUE(absl::IsResourceExhausted(source_->Connect(description).status()));
  }
  ExpectPutArrives(first.get());
  ExpectPutArrives(second.get());
}

// Each time the ring is full when the source leaves. The target would know it for ever, and take no
// more connections after so many.
TEST_F(UcxTransport, TheTargetHearsThatTheSourceLeftThoughTheRingWasFull) {
  constexpr size_t kBytes = 1 << 20;
  constexpr int kConnectionsMax = 1024;
  std::vector<std::byte> sent(kBytes), came(kBytes);
  const auto target = *MakeUcxTransport({.tls = "self,shm"});
  const Region to = *target->Register(came.data(), kBytes);
  const Region from = *source_->Register(sent.data(), kBytes);
  const std::string description = *target->Describe({&to.id, 1});
  std::vector<TransferCompletion> ended;
  for (int i = 0; i <= kConnectionsMax; ++i) {
    const auto peer = source_->Connect(description);
    ASSERT_TRUE(peer.ok()) << peer.status();
    const TransferPiece all = {from.id, 0, peer->regions.at(0), 0, kBytes};
    ASSERT_TRUE(source_->Post(peer->id, TransferOp::kPut, {&all, 1}, 60s).ok());
    ASSERT_EQ(source_->Poll(1, 0ns, &ended), 0u);
    ASSERT_TRUE(source_->Disconnect(peer->id).ok());
    ASSERT_EQ(source_->Poll(1, 0ns, &ended), 1u);
    target->Poll(1, 0ns, &ended);
    source_->Poll(1, 0ns, &ended);
    target->Poll(1, 0ns, &ended);
  }
  const auto peer = source_->Connect(description);
  ASSERT_TRUE(peer.ok()) << peer.status();
  const TransferPiece one = {from.id, 0, peer->regions.at(0), 0, 1};
  ASSERT_TRUE(source_->Post(peer->id, TransferOp::kPut, {&one, 1}, 60s).ok());
  source_->Poll(1, 0ns, &ended);
  target->Poll(1, 0ns, &ended);
  ended.clear();
  ASSERT_EQ(source_->Poll(1, 0ns, &ended), 1u);
  EXPECT_TRUE(ended[0].status.ok()) << ended[0].status;
}

}  // namespace
}  // namespace skein::engine
