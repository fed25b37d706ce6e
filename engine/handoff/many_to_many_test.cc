// KV of one prompt, dealt at random over several writers, arrives in a receiver of 1, 2, 4 and 8
// ranks (of 4 heads) as if one writer of that layout had written it.
#include <algorithm>
#include <map>
#include <optional>

#include "engine/handoff/handoff_sender.h"
#include "engine/handoff/layout_map.h"
#include "engine/handoff/testing/pool.h"

namespace skein::engine {
namespace {

using std::chrono::milliseconds;

constexpr KvSpec kSpec = {
    {.num_layers = 2, .kv_heads = 4, .head_dim = 4, .block_tokens = 4, .dtype = DType::kBF16}, 64};
constexpr HandoffKey kKey = {1, 2, 3};

struct Writer {
  Writer(TestingNetwork* network, std::mt19937_64* random)
      : pool(network, kSpec),
        sender(pool.transport.get(), kSpec, pool.regions, milliseconds(5000),
               {.done = [this](HandoffKey, std::vector<int64_t> b) { bytes = std::move(b); },
                .failed = [this](HandoffKey, absl::Status status) { failed = status; },
                .stopped = [](HandoffKey) { FAIL() << "stopped"; }}),
        free(RandomBlocks(kSpec.num_blocks, kSpec.num_blocks, random)) {}

  // Puts the prompt's block into a local one.
  HandoffBlock Take(const PromptKv& kv, int64_t global) {
    const HandoffBlock block{global, free.back()};
    free.pop_back();
    for (int layer = 0; layer < kSpec.num_layers; ++layer) {
      const auto& bytes = kv[static_cast<size_t>(layer)][static_cast<size_t>(global)];
      std::memcpy(pool.Block(layer, block.local), bytes.data(), bytes.size());
    }
    return block;
  }

  TestingPool pool;
  std::optional<std::vector<int64_t>> bytes;
  std::optional<absl::Status> failed;
  HandoffSender sender;
  std::vector<BlockId> free;
};

// One prompt in pieces; each piece's blocks are dealt to random writers, and become known to their
// senders with the piece.
class Prompt {
 public:
  Prompt(TestingNetwork* network, int writers, int tp, uint64_t seed)
      : random_(seed), layout_{tp}, tokens_(1 + static_cast<int64_t>(random_() % 200)) {
    blocks_ = BlocksOfLayout(kSpec, {1}, tokens_);
    kv_ = RandomKv(kSpec, blocks_, &random_);
    for (int i = 0; i < writers; ++i) {
      writers_.push_back(std::make_unique<Writer>(network, &random_));
      writers_.back()->sender.Open(kKey, {}, tokens_, /*more=*/true);
    }
    for (int rank = 0; rank < tp; ++rank) {
      targets_.push_back(std::make_unique<TestingPool>(network, kSpec));
      grant_.push_back(
          {RandomBlocks(BlocksOfLayout(kSpec, layout_, tokens_), kSpec.num_blocks, &random_),
           targets_.back()->description});
    }
  }

  void Run() {
    for (int64_t first = 0; first < blocks_;) {
      const int64_t last = std::min(blocks_, first + 1 + static_cast<int64_t>(random_() % 16));
      RunPiece(first, last);
      first = last;
    }
    for (auto& writer : writers_) Grant(writer.get());
    for (int i = 0; i < 200000 && !Ended(); ++i) Pump();
  }

  void ExpectArrived() {
    int64_t bytes = 0;
    for (const auto& writer : writers_) {
      EXPECT_FALSE(writer->failed.has_value()) << *writer->failed;
      ASSERT_TRUE(writer->bytes.has_value());
      bytes += writer->bytes->front();
    }
    EXPECT_EQ(bytes, blocks_ * kSpec.BlockBytes());
    for (int rank = 0; rank < layout_.tp; ++rank) {
      for (int layer = 0; layer < kSpec.num_layers; ++layer) ExpectHeads(rank, layer);
    }
  }

 private:
  void RunPiece(int64_t first, int64_t last) {
    std::map<size_t, std::vector<HandoffBlock>> dealt;
    for (int64_t global = first; global < last; ++global) {
      const size_t writer = random_() % writers_.size();
      dealt[writer].push_back(writers_[writer]->Take(kv_, global));
    }
    for (size_t i = 0; i < writers_.size(); ++i) {
      Writer& writer = *writers_[i];
      writer.sender.Add(kKey, dealt[i], last < blocks_);
      for (int layer = 0; layer < kSpec.num_layers; ++layer) {
        writer.sender.Written(kKey, layer, std::min(last * kSpec.block_tokens, tokens_));
      }
      if (random_() % 3 == 0) Grant(&writer);
    }
    Pump();
  }

  void Grant(Writer* writer) {
    if (!granted_.insert({writer, true}).second) return;
    writer->sender.Grant(
        kKey, {.targets = grant_,
               .post_until = std::chrono::steady_clock::now() + std::chrono::seconds(60)});
  }

  void Pump() {
    std::vector<TransferCompletion> none;
    for (auto& writer : writers_) writer->sender.Pump({});
    for (auto& target : targets_) target->transport->Poll(16, {}, &none);
  }

  bool Ended() const {
    return std::all_of(writers_.begin(), writers_.end(), [](const auto& writer) {
      return writer->bytes.has_value() || writer->failed.has_value();
    });
  }

  // Reads the target as attention does, head by head and token by token.
  void ExpectHeads(int rank, int layer) {
    const int heads = KvHeads(layout_, kSpec);
    const int first_head = layout_.tp == 8 ? rank / 2 : rank * heads;
    const int64_t row = kSpec.head_dim * static_cast<int64_t>(BytesOf(kSpec.dtype));
    const int64_t tokens = TokensPerBlock(layout_, kSpec);
    for (int64_t i = 0; i < 2 * heads * tokens_; ++i) {
      const int64_t part = i / (heads * tokens_), head = i / tokens_ % heads, token = i % tokens_;
      const BlockId block =
          grant_[static_cast<size_t>(rank)].blocks[static_cast<size_t>(token / tokens)];
      const std::byte* target = targets_[static_cast<size_t>(rank)]->Block(layer, block) +
                                ((part * heads + head) * tokens + token % tokens) * row;
      const std::byte* source =
          kv_[static_cast<size_t>(layer)][static_cast<size_t>(token / kSpec.block_tokens)].data() +
          ((part * kSpec.kv_heads + first_head + head) * kSpec.block_tokens +
           token % kSpec.block_tokens) *
              row;
      ASSERT_EQ(std::memcmp(target, source, static_cast<size_t>(row)), 0)
          << "rank " << rank << " layer " << layer << " part " << part << " head " << head
          << " token " << token;
    }
  }

  std::mt19937_64 random_;
  const KvLayout layout_;
  const int64_t tokens_;
  int64_t blocks_ = 0;
  PromptKv kv_;
  std::vector<std::unique_ptr<TestingPool>> targets_;
  std::vector<HandoffTarget> grant_;
  std::vector<std::unique_ptr<Writer>> writers_;
  std::map<Writer*, bool> granted_;
};

class ManyToManyTest : public ::testing::TestWithParam<PoolKind> {};

TEST_P(ManyToManyTest, RandomPlansArriveInEveryLayout) {
  TestingNetwork network(GetParam());
  const uint64_t seeds = GetParam() == PoolKind::kLoopback ? 60 : 6;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const int writers = 1 + static_cast<int>(seed % 5);
    const int tp = 1 << (seed % 4);
    SCOPED_TRACE(testing::Message() << "seed " << seed << " writers " << writers << " tp " << tp);
    Prompt prompt(&network, writers, tp, seed);
    prompt.Run();
    prompt.ExpectArrived();
    if (HasFatalFailure()) return;
  }
}

TEST_P(ManyToManyTest, AWriterWithoutBlocksIsDoneAtOnce) {
  TestingNetwork network(GetParam());
  std::mt19937_64 random(1);
  Writer writer(&network, &random);
  TestingPool target(&network, kSpec);
  writer.sender.Open(kKey, {}, 8);
  writer.sender.Grant(kKey, {.targets = {{{{3}, {4}}, target.description}},
                             .post_until = std::chrono::steady_clock::time_point::max()});
  writer.sender.Pump(std::chrono::seconds(10));
  ASSERT_TRUE(writer.bytes.has_value());
  EXPECT_EQ(*writer.bytes, std::vector<int64_t>(2, 0));
}

TEST_P(ManyToManyTest, RanksThatDoNotDivideTheHeadsAreRefused) {
  TestingNetwork network(GetParam());
  std::mt19937_64 random(1);
  Writer writer(&network, &random);
  TestingPool target(&network, kSpec);
  writer.sender.Open(kKey, {{0, 1}}, 8);
  writer.sender.Grant(kKey, {.targets = std::vector<HandoffTarget>(3, {{{3}}, target.description}),
                             .post_until = std::chrono::steady_clock::time_point::max()});
  writer.sender.Pump({});
  ASSERT_TRUE(writer.failed.has_value());
  EXPECT_NE(std::string(writer.failed->message()).find("layout"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Transports, ManyToManyTest,
                         ::testing::Values(PoolKind::kLoopback, PoolKind::kUcx, PoolKind::kFar,
                                           PoolKind::kFarDirect),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace skein::engine
