// A staged handoff: through a buffer of few slots into the blocks, and what ends one.
#include <optional>

#include "engine/handoff/handoff_sender.h"
#include "engine/handoff/staging_receiver.h"
#include "engine/handoff/testing/pool.h"
#include "engine/handoff/testing/whole_prompt.h"

namespace skein::engine {
namespace {

constexpr KvSpec kSpec = {
    {.num_layers = 3, .kv_heads = 2, .head_dim = 4, .block_tokens = 4, .dtype = DType::kBF16}, 64};
constexpr HandoffKey kKey = {1, 2, 3};
constexpr int64_t kBlocks = 11;

class StagingTest : public ::testing::TestWithParam<PoolKind> {
 protected:
  StagingTest()
      : network_(GetParam()),
        source_(&network_, kSpec),
        target_(&network_, kSpec),
        receiver_(*StagingReceiver::Create(target_.transport.get(), kSpec, target_.kv_regions, 2, 4,
                                           target_.copies)),
        sender_(
            source_.transport.get(), kSpec, source_.regions, std::chrono::seconds(5),
            {.done = [this](HandoffKey, std::vector<int64_t> bytes) { done_ = bytes; },
             .failed = [this](HandoffKey, absl::Status status) { failed_ = status; },
             .stopped = [this](HandoffKey) { stopped_ = true; },
             .part = [this](HandoffKey,
                            std::vector<StagedBlock> part) { parts_.push_back(std::move(part)); },
             .waits = [this](HandoffKey) { ++waits_; },
             .idle = [this](HandoffKey) { ++idle_; }}) {
    kv_ = RandomKv(kSpec, kBlocks, &random_);
    local_ = RandomBlocks(kBlocks, kSpec.num_blocks, &random_);
    remote_ = RandomBlocks(kBlocks, kSpec.num_blocks, &random_);
    for (int layer = 0; layer < kSpec.num_layers; ++layer) {
      for (size_t i = 0; i < local_.size(); ++i) {
        const auto& bytes = kv_[static_cast<size_t>(layer)][i];
        std::memcpy(source_.Block(layer, local_[i]), bytes.data(), bytes.size());
      }
    }
    sender_.Open(kKey, WholePrompt(local_), kBlocks * kSpec.block_tokens - 2);
  }

  HandoffGrant GrantOf(int buffer) {
    return {.targets = {{{}, receiver_->Description(buffer)}},
            .post_until = std::chrono::steady_clock::now() + std::chrono::seconds(60),
            .staging_slots = receiver_->slots()};
  }
  void WriteAll() {
    for (int layer = 0; layer < kSpec.num_layers; ++layer) {
      sender_.Written(kKey, layer, kBlocks * kSpec.block_tokens - 2);
    }
  }
  bool Ended() const { return done_.has_value() || failed_.has_value() || stopped_; }
  void PumpUntil(const std::function<bool()>& condition) {
    std::vector<TransferCompletion> none;
    for (int i = 0; i < 100000 && !condition(); ++i) {
      sender_.Pump({});
      target_.transport->Poll(16, {}, &none);
    }
    ASSERT_TRUE(condition());
  }
  static std::vector<int32_t> SlotsOf(const std::vector<StagedBlock>& part) {
    std::vector<int32_t> slots;
    for (const StagedBlock& staged : part) slots.push_back(staged.slot);
    return slots;
  }

  std::mt19937_64 random_{7};
  TestingNetwork network_;
  TestingPool source_;
  TestingPool target_;
  std::unique_ptr<StagingReceiver> receiver_;
  PromptKv kv_;
  std::vector<BlockId> local_, remote_;
  std::optional<std::vector<int64_t>> done_;
  std::optional<absl::Status> failed_;
  bool stopped_ = false;
  std::vector<std::vector<StagedBlock>> parts_;
  int waits_ = 0, idle_ = 0;
  HandoffSender sender_;
};

TEST_P(StagingTest, EveryBlockArrivesInPartsThatFitTheBuffer) {
  sender_.Grant(kKey, GrantOf(1));
  WriteAll();
  size_t taken = 0;
  PumpUntil([&] {
    for (; taken < parts_.size(); ++taken) {
      EXPECT_LE(parts_[taken].size(), 4u);
      const absl::Status status = receiver_->Take(1, parts_[taken], remote_);
      EXPECT_TRUE(status.ok()) << status;
      sender_.Taken(kKey, SlotsOf(parts_[taken]), status);
    }
    return Ended();
  });
  ASSERT_TRUE(done_.has_value());
  EXPECT_EQ(*done_, std::vector<int64_t>(3, kBlocks * kSpec.BlockBytes()));
  for (int layer = 0; layer < kSpec.num_layers; ++layer) {
    for (size_t i = 0; i < remote_.size(); ++i) {
      const auto& bytes = kv_[static_cast<size_t>(layer)][i];
      EXPECT_EQ(std::memcmp(target_.Block(layer, remote_[i]), bytes.data(), bytes.size()), 0);
    }
  }
}

TEST_P(StagingTest, ASlotIsNotUsedAgainBeforeItWasTaken) {
  sender_.Grant(kKey, GrantOf(0));
  WriteAll();
  PumpUntil([this] { return !parts_.empty(); });
  for (int i = 0; i < 100; ++i) sender_.Pump({});
  EXPECT_EQ(parts_.size(), 1u);
  EXPECT_FALSE(Ended());
}

// A layer at a time, each through another buffer than the one before.
TEST_P(StagingTest, ABufferIsAskedForWhenItIsNeededAndGivenBackWhenItIsNot) {
  HandoffGrant grant = GrantOf(0);
  grant.targets.clear();
  grant.idle_after = std::chrono::milliseconds(1);
  sender_.Grant(kKey, std::move(grant));
  for (int i = 0; i < 10; ++i) sender_.Pump({});
  EXPECT_EQ(waits_, 0);  // nothing is written yet
  size_t taken = 0;
  for (int layer = 0; layer < kSpec.num_layers; ++layer) {
    sender_.Written(kKey, layer, kBlocks * kSpec.block_tokens - 2);
    PumpUntil([&] { return waits_ == layer + 1; });
    EXPECT_EQ(taken, parts_.size());
    const int buffer = layer % 2;
    sender_.UseBuffer(kKey, receiver_->Description(buffer));
    PumpUntil([&] {
      for (; taken < parts_.size(); ++taken) {
        const absl::Status status = receiver_->Take(buffer, parts_[taken], remote_);
        sender_.Taken(kKey, SlotsOf(parts_[taken]), status);
      }
      return idle_ == layer + 1 || Ended();
    });
  }
  ASSERT_TRUE(done_.has_value());
  EXPECT_EQ(idle_, kSpec.num_layers - 1);  // the last layer's end is the handoff's
  for (int layer = 0; layer < kSpec.num_layers; ++layer) {
    for (size_t i = 0; i < remote_.size(); ++i) {
      const auto& bytes = kv_[static_cast<size_t>(layer)][i];
      EXPECT_EQ(std::memcmp(target_.Block(layer, remote_[i]), bytes.data(), bytes.size()), 0);
    }
  }
}

TEST_P(StagingTest, WhoWaitsForABufferCanBeStopped) {
  HandoffGrant grant = GrantOf(0);
  grant.targets.clear();
  sender_.Grant(kKey, std::move(grant));
  WriteAll();
  PumpUntil([this] { return waits_ == 1; });
  sender_.Stop(kKey);
  PumpUntil([this] { return Ended(); });
  EXPECT_TRUE(stopped_);
  sender_.UseBuffer(kKey, receiver_->Description(0));  // too late
}

TEST_P(StagingTest, AStopAndARefusalEndIt) {
  sender_.Grant(kKey, GrantOf(0));
  WriteAll();
  PumpUntil([this] { return !parts_.empty(); });
  if (GetParam() == PoolKind::kLoopback) {
    sender_.Stop(kKey);
    PumpUntil([this] { return Ended(); });
    EXPECT_TRUE(stopped_);
  } else {
    sender_.Taken(kKey, SlotsOf(parts_[0]), absl::FailedPreconditionError("epoch: stale"));
    PumpUntil([this] { return Ended(); });
    EXPECT_EQ(failed_->message(), "epoch: stale");
  }
  sender_.Taken(kKey, SlotsOf(parts_[0]), absl::OkStatus());  // late words are ignored
}

TEST_P(StagingTest, APartOutsideItsPlaceIsRefusedAndCopiesNothing) {
  const auto why = [this](int buffer, StagedBlock staged) {
    return std::string(receiver_->Take(buffer, {{{0, 0, 0}, staged}}, remote_).message());
  };
  EXPECT_NE(why(2, {0, 0, 1}).find("buffer: 2"), std::string::npos);
  EXPECT_NE(why(0, {4, 0, 1}).find("slot: 4"), std::string::npos);
  EXPECT_NE(why(0, {1, 3, 1}).find("layer: 3"), std::string::npos);
  EXPECT_NE(why(0, {1, 0, kBlocks}).find("block: 11"), std::string::npos);
  EXPECT_EQ(target_.Block(0, remote_[0])[0], std::byte{0});
}

INSTANTIATE_TEST_SUITE_P(Transports, StagingTest,
                         ::testing::Values(PoolKind::kLoopback, PoolKind::kUcx, PoolKind::kFar,
                                           PoolKind::kFarDirect),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace skein::engine
