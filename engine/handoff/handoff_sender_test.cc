#include "engine/handoff/handoff_sender.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <random>

#include "engine/handoff/testing/whole_prompt.h"
#include "engine/transport/loopback_transport.h"
#include "engine/transport/testing/fault_transport.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

using std::chrono::milliseconds;

constexpr KvSpec kSpec = {
    {.num_layers = 3, .kv_heads = 2, .head_dim = 4, .block_tokens = 4, .dtype = DType::kF32}, 32};

// One instance's KV pool behind a transport.
struct Pool {
  explicit Pool(std::unique_ptr<Transport> t) : transport(std::move(t)) {
    for (int layer = 0; layer < kSpec.num_layers; ++layer) {
      const auto region =
          transport->Register(nullptr, static_cast<size_t>(kSpec.num_blocks * kSpec.BlockBytes()));
      EXPECT_TRUE(region.ok()) << region.status();
      regions.push_back(region->id);
      bases.push_back(region->base);
    }
    description = *transport->Describe(regions);
  }
  std::byte* Block(int layer, BlockId block) {
    return bases[layer] + block.value * kSpec.BlockBytes();
  }

  std::unique_ptr<Transport> transport;
  std::vector<RegionId> regions;
  std::vector<std::byte*> bases;
  std::string description;
};

class HandoffSenderTest : public ::testing::Test {
 protected:
  HandoffSenderTest()
      : network_(MakeLoopbackFabric()),
        source_(MakeLoopbackTransport(network_)),
        target_(MakeLoopbackTransport(network_)),
        sender_(source_.transport.get(), kSpec, source_.regions, std::chrono::seconds(60),
                {.done = [this](HandoffKey, std::vector<int64_t> bytes) { done_ = bytes; },
                 .failed = [this](HandoffKey, absl::Status status) { failed_ = status; },
                 .stopped = [this](HandoffKey) { stopped_ = true; },
                 .carried =
                     [this](HandoffKey, const PeerInfo& by) {
                       EXPECT_FALSE(done_.has_value());
                       carried_ = by;
                     }}) {}

  HandoffGrant GrantOf(std::vector<BlockId> blocks) {
    return {.targets = {{std::move(blocks), target_.description}},
            .post_until = std::chrono::steady_clock::now() + std::chrono::seconds(60)};
  }
  bool Ended() const { return done_.has_value() || failed_.has_value() || stopped_; }
  void PumpUntilEnded() {
    std::vector<TransferCompletion> none;
    for (int i = 0; i < 100000 && !Ended(); ++i) {
      sender_.Pump({});
      target_.transport->Poll(16, {}, &none);
    }
    ASSERT_TRUE(Ended());
  }
  void Fill(const std::vector<BlockId>& blocks, int layer, uint64_t seed) {
    std::mt19937_64 random(seed + static_cast<uint64_t>(layer));
    for (const BlockId block : blocks) {
      for (int64_t i = 0; i < kSpec.BlockBytes(); ++i) {
        source_.Block(layer, block)[i] = static_cast<std::byte>(random());
      }
    }
  }

  std::shared_ptr<LoopbackFabric> network_;
  Pool source_;
  Pool target_;
  std::optional<std::vector<int64_t>> done_;
  std::optional<PeerInfo> carried_;
  std::optional<absl::Status> failed_;
  bool stopped_ = false;
  HandoffSender sender_;
};

constexpr HandoffKey kKey = {1, 2, 3};

TEST_F(HandoffSenderTest, EveryBlockOfEveryLayerArrivesWhereItWasGranted) {
  const std::vector<BlockId> local = {{4}, {9}, {2}, {30}}, remote = {{7}, {8}, {1}, {0}};
  sender_.Open(kKey, WholePrompt(local), 14);  // 3 full blocks and 2 tokens
  for (int layer = 0; layer < kSpec.num_layers; ++layer) Fill(local, layer, 1);
  // Chunks of 6 and 8 tokens; granted between the two.
  for (int layer = 0; layer < kSpec.num_layers; ++layer) sender_.Written(kKey, layer, 6);
  sender_.Grant(kKey, GrantOf(remote));
  sender_.Pump({});
  EXPECT_FALSE(Ended());
  for (int layer = 0; layer < kSpec.num_layers; ++layer) sender_.Written(kKey, layer, 14);
  PumpUntilEnded();
  ASSERT_TRUE(done_.has_value());
  EXPECT_EQ(*done_, std::vector<int64_t>(3, 4 * kSpec.BlockBytes()));
  ASSERT_TRUE(carried_.has_value());
  EXPECT_EQ(carried_->path, "direct");
  EXPECT_EQ(carried_->transport, "loopback");
  for (int layer = 0; layer < kSpec.num_layers; ++layer) {
    for (size_t i = 0; i < local.size(); ++i) {
      EXPECT_EQ(std::memcmp(source_.Block(layer, local[i]), target_.Block(layer, remote[i]),
                            static_cast<size_t>(kSpec.BlockBytes())),
                0);
    }
  }
}

TEST_F(HandoffSenderTest, ABlockIsNotPutBeforeItsLastTokenIsWritten) {
  sender_.Open(kKey, WholePrompt({{0}, {1}}), 8);
  sender_.Grant(kKey, GrantOf({{5}, {6}}));
  Fill({{0}, {1}}, 0, 1);
  sender_.Written(kKey, 0, 7);  // block 1 lacks a token
  std::vector<TransferCompletion> none;
  for (int i = 0; i < 100; ++i) {
    sender_.Pump({});
    target_.transport->Poll(16, {}, &none);
  }
  EXPECT_EQ(target_.Block(0, {5})[0], source_.Block(0, {0})[0]);
  EXPECT_EQ(target_.Block(0, {6})[0], std::byte{0});
}

TEST_F(HandoffSenderTest, StopEndsWithStoppedAndNothingAfter) {
  sender_.Open(kKey, WholePrompt({{0}}), 4);
  sender_.Grant(kKey, GrantOf({{5}}));
  sender_.Stop(kKey);
  PumpUntilEnded();
  EXPECT_TRUE(stopped_);
  sender_.Written(kKey, 0, 4);  // late words of the engine are ignored
  sender_.Pump({});
  EXPECT_FALSE(done_.has_value());
}

TEST_F(HandoffSenderTest, APastLeasePostsNothing) {
  sender_.Open(kKey, WholePrompt({{0}}), 4);
  HandoffGrant grant = GrantOf({{5}});
  grant.post_until = std::chrono::steady_clock::now() - milliseconds(1);
  sender_.Grant(kKey, std::move(grant));
  Fill({{0}}, 0, 1);
  sender_.Written(kKey, 0, 4);
  PumpUntilEnded();
  ASSERT_TRUE(failed_.has_value());
  EXPECT_EQ(failed_->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(target_.Block(0, {5})[0], std::byte{0});
}

TEST_F(HandoffSenderTest, AGrantThatDoesNotFitIsRefusedByName) {
  sender_.Open(kKey, WholePrompt({{0}, {1}}), 8);
  sender_.Grant(kKey, GrantOf({{5}}));
  PumpUntilEnded();
  ASSERT_TRUE(failed_.has_value());
  EXPECT_EQ(failed_->code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(failed_->message()).find("blocks"), std::string::npos);
}

TEST_F(HandoffSenderTest, ABlockOutsideTheGrantedMemoryFailsInsteadOfWriting) {
  sender_.Open(kKey, WholePrompt({{0}}), 4);
  sender_.Grant(kKey, GrantOf({{static_cast<int32_t>(kSpec.num_blocks)}}));
  sender_.Written(kKey, 0, 4);
  PumpUntilEnded();
  ASSERT_TRUE(failed_.has_value());
  EXPECT_EQ(failed_->code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(HandoffSenderTest, ADeadPeerFailsTheHandoff) {
  sender_.Open(kKey, WholePrompt({{0}}), 4);
  sender_.Grant(kKey, GrantOf({{5}}));
  target_.transport.reset();
  for (int layer = 0; layer < kSpec.num_layers; ++layer) sender_.Written(kKey, layer, 4);
  for (int i = 0; i < 100 && !Ended(); ++i) sender_.Pump(milliseconds(50));
  ASSERT_TRUE(failed_.has_value());
  EXPECT_EQ(failed_->code(), absl::StatusCode::kUnavailable);
}

// A decode instance with an incarnation of its own each time it starts, and one sender that lives
// on.
class ManyIncarnations : public ::testing::Test {
 protected:
  explicit ManyIncarnations(size_t peers_max = HandoffSender::kPeersMax)
      : sender_(source_.transport.get(), kSpec, source_.regions, std::chrono::seconds(60),
                {.done = [this](HandoffKey, std::vector<int64_t>) { ++done_; },
                 .failed = [this](HandoffKey, absl::Status status) { failed_ = status; },
                 .stopped = [](HandoffKey) {}},
                peers_max) {}

  std::unique_ptr<Pool> NewTarget() {
    return std::make_unique<Pool>(MakeLoopbackTransport(network_));
  }
  void Begin(HandoffKey key, const Pool& target) {
    sender_.Open(key, WholePrompt({{0}}), 4);
    sender_.Grant(key, {.targets = {{{{5}}, target.description}},
                        .post_until = std::chrono::steady_clock::now() + std::chrono::seconds(60),
                        .peer = "decode:1"});
  }
  void Finish(HandoffKey key, Pool* target) {
    const int before = done_;
    for (int layer = 0; layer < kSpec.num_layers; ++layer) sender_.Written(key, layer, 4);
    std::vector<TransferCompletion> none;
    while (done_ == before && failed_.ok()) {
      sender_.Pump({});
      target->transport->Poll(16, {}, &none);
    }
    ASSERT_TRUE(failed_.ok()) << failed_;
  }
  void RunHandoff(HandoffKey key, Pool* target) {
    Begin(key, *target);
    Finish(key, target);
  }
  uint64_t BytesMoved() const {
    uint64_t bytes = 0;
    for (const HandoffTotals& total : sender_.Totals()) bytes += total.bytes;
    return bytes;
  }
  int64_t Connected() const {
    const std::vector<HandoffTotals> totals = sender_.Totals();
    return std::count_if(totals.begin(), totals.end(),
                         [](const HandoffTotals& total) { return total.id != PeerId{}; });
  }
  static uint64_t BytesOf(int handoffs) {
    return static_cast<uint64_t>(handoffs * kSpec.num_layers * kSpec.BlockBytes());
  }

  std::shared_ptr<LoopbackFabric> network_ = MakeLoopbackFabric();
  Pool source_{MakeLoopbackTransport(network_)};
  int done_ = 0;
  absl::Status failed_;
  HandoffSender sender_;
};

// More than a transport's peers.
TEST_F(ManyIncarnations, AnyNumberOfThemIsHandedOverTo) {
  constexpr int kRestarts = 1100;
  for (int i = 0; i < kRestarts; ++i) {
    const std::unique_ptr<Pool> target = NewTarget();
    RunHandoff({1, static_cast<uint64_t>(i), 1}, target.get());
    ASSERT_FALSE(HasFatalFailure()) << "restart " << i;
  }
  EXPECT_EQ(BytesMoved(), BytesOf(kRestarts));
}

TEST_F(ManyIncarnations, OneThatDiedIsDisconnected) {
  std::unique_ptr<Pool> target = NewTarget();
  RunHandoff({1, 1, 1}, target.get());
  sender_.DropGonePeers();
  EXPECT_EQ(Connected(), 1);
  target.reset();
  sender_.Pump({});  // the transport sees it
  sender_.DropGonePeers();
  EXPECT_EQ(Connected(), 0);
  EXPECT_EQ(BytesMoved(), BytesOf(1));
}

class FewPeers : public ManyIncarnations {
 protected:
  FewPeers() : ManyIncarnations(2) {}
};

TEST_F(FewPeers, TheOneUsedLeastRecentlyIsDisconnectedAndConnectedAgain) {
  std::vector<std::unique_ptr<Pool>> targets;
  for (uint64_t i = 0; i < 4; ++i) {
    targets.push_back(NewTarget());
    RunHandoff({1, i, 1}, targets.back().get());
    EXPECT_LE(Connected(), 2);
  }
  for (uint64_t i = 0; i < 4; ++i) RunHandoff({1, i, 2}, targets[i].get());
  EXPECT_EQ(Connected(), 2);
  EXPECT_EQ(BytesMoved(), BytesOf(8));
}

TEST_F(FewPeers, OneInUseStaysConnected) {
  const std::unique_ptr<Pool> used = NewTarget();
  Begin({1, 0, 1}, *used);
  std::vector<std::unique_ptr<Pool>> others;
  for (uint64_t i = 1; i < 5; ++i) {
    others.push_back(NewTarget());
    RunHandoff({1, i, 1}, others.back().get());
  }
  Finish({1, 0, 1}, used.get());
  EXPECT_EQ(BytesMoved(), BytesOf(5));
}

class WakesCounted : public FaultTransport {
 public:
  explicit WakesCounted(std::unique_ptr<Transport> inner)
      : FaultTransport(std::move(inner), [](uint64_t, PeerId) { return TransferFault(); }) {}
  void Wake() override {
    ++wakes;
    FaultTransport::Wake();
  }

  int wakes = 0;
};

// How often the progress thread is woken for a prompt of one block in three layers; `pumps`: by
// itself.
int WakesOfAStep(const KvSpec& spec, bool pumps = false) {
  const auto network = MakeLoopbackFabric();
  WakesCounted source(MakeLoopbackTransport(network));
  const auto target = MakeLoopbackTransport(network);
  std::vector<RegionId> from, to;
  for (int layer = 0; layer < spec.num_layers; ++layer) {
    const auto bytes = static_cast<size_t>(spec.num_blocks * spec.BlockBytes());
    from.push_back(source.Register(nullptr, bytes)->id);
    to.push_back(target->Register(nullptr, bytes)->id);
  }
  bool done = false;
  HandoffSender sender(&source, spec, from, std::chrono::seconds(60),
                       {.done = [&](HandoffKey, const std::vector<int64_t>&) { done = true; },
                        .failed = [](HandoffKey, const absl::Status& why) { FAIL() << why; },
                        .stopped = [](HandoffKey) {}});
  sender.Open(kKey, WholePrompt({{0}}), spec.block_tokens);
  sender.Grant(kKey, {.targets = {{{{0}}, *target->Describe(to)}},
                      .post_until = std::chrono::steady_clock::now() + std::chrono::seconds(60)});
  if (pumps) sender.Pump({});
  source.wakes = 0;
  for (int layer = 0; layer < spec.num_layers; ++layer) {
    sender.Written(kKey, layer, spec.block_tokens);
  }
  std::vector<TransferCompletion> none;
  for (int i = 0; i < 100000 && !done; ++i) {
    sender.Pump({});
    target->Poll(16, {}, &none);
  }
  EXPECT_TRUE(done);
  return source.wakes;
}

TEST(HandoffSenderWakesTest, SmallLayersWakeTheProgressThreadTogether) {
  KvSpec spec = kSpec;
  EXPECT_EQ(WakesOfAStep(spec), 1) << "at the last layer";
  spec.num_blocks = 1;
  spec.head_dim = HandoffSender::kWakeBytes / kSpec.BlockBytes() * kSpec.head_dim;
  EXPECT_EQ(WakesOfAStep(spec), 3) << "each layer is large";
  EXPECT_EQ(WakesOfAStep(spec, /*pumps=*/true), 0) << "it is awake";
}

}  // namespace
}  // namespace skein::engine
