// How much passes round the ring of a ring step: everything to everybody in all layers but the
// last, and there only what somebody attends to.
#include <atomic>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/local/local_fabric.h"
#include "engine/comm/testing/ranks.h"
#include "engine/device/cpu_device.h"
#include "engine/model/model_engine.h"
#include "engine/model/testing/ranks/prompt_dealer.h"
#include "engine/model/testing/ranks/ring_member.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/random_checkpoint/random_checkpoint.h"

namespace skein::engine {
namespace {

constexpr int kRanks = 4;
constexpr int kLayers = 3;
constexpr int kBlockTokens = 4;

// Adds up what goes round.
class CountingRing final : public Communicator {
 public:
  CountingRing(Communicator* inner, std::atomic<int64_t>* sent) : inner_(inner), sent_(sent) {}
  int Rank() const override { return inner_->Rank(); }
  int Size() const override { return inner_->Size(); }
  void Tag(uint64_t tag) override { inner_->Tag(tag); }
  absl::Status AllReduce(void* data, int64_t count, DType dtype, CommDeadline deadline) override {
    return inner_->AllReduce(data, count, dtype, deadline);
  }
  absl::Status AllGather(std::span<const std::byte> send, std::span<std::byte> receive,
                         CommDeadline deadline) override {
    return inner_->AllGather(send, receive, deadline);
  }
  absl::Status ReduceScatter(const void* send, void* receive, int64_t count, DType dtype,
                             CommDeadline deadline) override {
    return inner_->ReduceScatter(send, receive, count, dtype, deadline);
  }
  absl::Status AllToAll(std::span<const std::span<const std::byte>> send,
                        std::span<const std::span<std::byte>> receive,
                        CommDeadline deadline) override {
    return inner_->AllToAll(send, receive, deadline);
  }
  absl::Status SendRecv(std::span<const std::byte> send, int to, std::span<std::byte> receive,
                        int from, CommDeadline deadline) override {
    *sent_ += static_cast<int64_t>(send.size());
    return inner_->SendRecv(send, to, receive, from, deadline);
  }
  absl::Status Broadcast(std::span<std::byte> data, int root, CommDeadline deadline) override {
    return inner_->Broadcast(data, root, deadline);
  }
  void Abort(const absl::Status& reason) override { inner_->Abort(reason); }

 private:
  Communicator* inner_;
  std::atomic<int64_t>* sent_;
};

class KvRingTraffic : public ::testing::Test {
 protected:
  KvRingTraffic() : ranks_([this] { return hub_.MakeFabric(); }, kRanks), ids_(kTokens) {
    const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                   {"hidden_size", 16},
                                   {"intermediate_size", 24},
                                   {"num_hidden_layers", kLayers},
                                   {"num_attention_heads", 2},
                                   {"vocab_size", 50},
                                   {"max_position_embeddings", 128}};
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    const std::string dir = ::testing::TempDir() + "/kv_ring_" + test->name();
    EXPECT_TRUE(tools::WriteRandomCheckpoint(dir, config, {.dtype = DType::kF32}).ok());
    ModelEngineOptions options;
    options.num_blocks = 40;
    options.block_tokens = kBlockTokens;
    options.max_batch_tokens = 128;
    options.ring_segment_bytes = 1500;  // two blocks
    for (int r = 0; r < kRanks; ++r) {
      auto engine = MakeModelEngine(dir, *MakeCpuOps({.threads = 1}), MakeCpuDevice(), options);
      EXPECT_TRUE(engine.ok()) << engine.status();
      engines_.push_back(*std::move(engine));
      members_.emplace_back(engines_.back().get());
    }
    std::iota(ids_.begin(), ids_.end(), 0);
    for (int32_t& id : ids_) id = id * 7 % 50;
  }

  // The next `blocks` blocks over all ranks; how many blocks went from rank to rank in the ring.
  int64_t RunChunk(int64_t blocks, bool score) {
    if (dealer_.BlocksLeft() == kBlocks) {
      for (RingMember& member : members_) member.Start(ids_, score, 1);
    }
    piece_ = dealer_.NextEven({0, 1, 2, 3}, blocks);
    const auto comm = ranks_.GroupOfAll(), moves = ranks_.GroupOfAll();
    std::atomic<int64_t> sent = 0;
    std::vector<std::thread> threads;
    for (size_t r = 0; r < kRanks; ++r) {
      threads.emplace_back([&, r] {
        CountingRing ring(comm[r].get(), &sent);
        const absl::Status status =
            members_[r].Run(piece_, r, {&ring, moves[r].get()}, Later(), nullptr);
        EXPECT_TRUE(status.ok()) << status;
      });
    }
    for (std::thread& thread : threads) thread.join();
    return sent / engines_[0]->Spec().kv.BlockBytes();
  }

  // Of the latest chunk: what a rank holds of it and of its history.
  int64_t BlocksOf(size_t rank) const {
    int64_t tokens = piece_.shares[rank].history_tokens;
    for (const TokenSpan& span : piece_.shares[rank].spans) tokens += span.count;
    return (tokens + kBlockTokens - 1) / kBlockTokens;
  }

  static constexpr int64_t kBlocks = 27;
  static constexpr int64_t kTokens = kBlocks * kBlockTokens - 1;
  static constexpr int64_t kAllHops = kRanks - 1;

  LocalHub hub_;
  TestingRanks ranks_;
  std::vector<int32_t> ids_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<RingMember> members_;
  PromptDealer dealer_{kTokens, kBlockTokens, 1};
  DealtPiece piece_;
};

TEST_F(KvRingTraffic, EverythingPassesWhereAllRanksWantLogits) {
  EXPECT_EQ(RunChunk(19, /*score=*/true), kLayers * kAllHops * 19);
}

TEST_F(KvRingTraffic, NothingPassesInTheLastLayerOfAChunkThatWantsNone) {
  EXPECT_EQ(RunChunk(19, /*score=*/false), (kLayers - 1) * kAllHops * 19);
}

TEST_F(KvRingTraffic, BlocksPassOnlyAsFarAsToTheRankThatSamples) {
  RunChunk(19, /*score=*/false);
  const int64_t passed = RunChunk(8, /*score=*/false);
  size_t sampler = 0;
  while (members_[sampler].token() < 0) ASSERT_LT(++sampler, size_t{kRanks});
  int64_t towards = 0;
  for (size_t r = 0; r < kRanks; ++r) {
    towards += BlocksOf(r) * static_cast<int64_t>((sampler + kRanks - r) % kRanks);
  }
  EXPECT_EQ(passed, (kLayers - 1) * kAllHops * 27 + towards);
}

}  // namespace
}  // namespace skein::engine
