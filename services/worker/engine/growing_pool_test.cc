// Handoffs into a pool that grows and shrinks: the decisions of KvIn, the memory of ExtraKv, and
// real puts of a HandoffSender over a transport. KV is as it was written whatever comes and goes;
// blocks that go are granted to nobody, their memory is the system's again, and no block is lost.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/device/cpu_device.h"
#include "engine/device/memory_budget.h"
#include "engine/handoff/handoff_sender.h"
#include "engine/handoff/testing/pool.h"
#include "engine/kv/kv_pages.h"
#include "engine/model/sharing/extra_kv.h"
#include "engine/transport/description.h"
#include "engine/transport/registered_device.h"
#include "scheduler/worker/kv_in/kv_in.h"

namespace skein::services {
namespace {

using engine::HandoffKey;
using engine::PoolKind;
using engine::TestingNetwork;
using scheduler::BlockTable;
using scheduler::KvIn;
using scheduler::RequestId;

constexpr int64_t kOwn = 16, kExtra = 48;
constexpr engine::KvSpec kKv = {{.num_layers = 2,
                                 .kv_heads = 2,
                                 .head_dim = 64,
                                 .block_tokens = 4,
                                 .dtype = engine::DType::kBF16},
                                kOwn + kExtra};
constexpr scheduler::Epoch kEpoch{1};
constexpr scheduler::Incarnation kWriter{9};
constexpr int64_t kBlocksMax = 5;  // of a prompt

// The bytes of a prompt's block in one layer.
std::vector<std::byte> Content(RequestId id, int layer, int64_t block) {
  std::mt19937_64 random(id.serial * 1000 + static_cast<uint64_t>(layer * 100 + block));
  std::vector<std::byte> bytes(static_cast<size_t>(kKv.BlockBytes()));
  for (size_t i = 0; i < bytes.size(); i += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, sizeof word);
  }
  return bytes;
}

// The decode side. The own blocks are always there.
class Target {
 public:
  explicit Target(TestingNetwork* network)
      : transport_(network->Make(nullptr)),
        device_(transport_.get(), engine::MakeCpuDevice()),
        budget_(std::make_shared<engine::MemoryBudget>(static_cast<size_t>(
            engine::KvPageBytes(kOwn, kKv) + engine::KvPageBytes(kExtra, kKv)))) {
    std::vector<engine::RegionId> regions;
    const auto bytes = static_cast<size_t>(kKv.num_blocks * kKv.BlockBytes());
    for (int layer = 0; layer < kKv.num_layers; ++layer) {
      layers_.push_back(device_.Alloc(bytes).value());
      regions.push_back(device_.RegionAt(layers_.back()));
    }
    extra_ = *engine::ExtraKv::Make({.kv = kKv,
                                     .extra_blocks = kExtra,
                                     .layers = layers_,
                                     .device = &device_,
                                     .budget = budget_});
    kv_in_ = std::make_unique<KvIn>(
        scheduler::KvInConfig{.shape = {kKv, "model"},
                              .total_blocks = kOwn,
                              .memory = *transport_->Describe(regions),
                              .lease_us = scheduler::kSecondUs,
                              .staging = {}},
        [](RequestId, scheduler::Epoch) {
          return KvIn::Gone{absl::CancelledError("it has ended")};
        },
        [this](scheduler::KvInEffect effect) {
          std::visit([this](auto& one) { Do(one); }, effect);
        });
  }
  ~Target() {
    for (void* const layer : layers_) {
      device_.Free(layer, static_cast<size_t>(kKv.num_blocks * kKv.BlockBytes()));
    }
  }

  KvIn& kv_in() { return *kv_in_; }

  // The blocks of a prompt, and the description under which they may be written; none: too few are
  // free.
  std::optional<engine::HandoffTarget> Grant(const scheduler::SpecPtr& spec) {
    if (!kv_in_->Reserve(spec, kEpoch, {kWriter}, 0).ok()) return std::nullopt;
    kv_in_->On(
        scheduler::OpenTransferCalled{{++calls_}, {spec->id, kEpoch, {1}, kWriter, {kKv, "model"}}},
        0);
    EXPECT_TRUE(opened_.status.ok()) << opened_.status;
    return engine::HandoffTarget{opened_.blocks, opened_.memory};
  }
  void Commit(RequestId id, std::vector<int64_t> bytes) {
    scheduler::CommitRequest commit{.id = id,
                                    .epoch = kEpoch,
                                    .bytes_per_layer = std::move(bytes),
                                    .has_token = true,
                                    .token = 1,
                                    .payload = "",
                                    .prompt_logprobs = "",
                                    .prefill = {1}};
    kv_in_->On(scheduler::CommitCalled{{++calls_}, std::move(commit)}, 0);
    kv_in_->TakeOutcomes();
  }
  void Poll() {
    std::vector<engine::TransferCompletion> none;
    transport_->Poll(16, {}, &none);
    for (const GrantId grant : transport_->TakeClosed()) {
      kv_in_->On(scheduler::GrantClosed{grant}, 0);
    }
  }

  // `reserve`: bytes of the budget that somebody else has meanwhile.
  void Grow(size_t reserve) {
    ASSERT_TRUE(budget_->Take(reserve));
    const BlockRange extra = extra_->Come();
    budget_->Give(reserve);
    ASSERT_LE(extra.count, kExtra);
    kv_in_->Grow(extra);
  }
  // REQUIRES: as many own blocks are free as are moved.
  void GiveBack() {
    ASSERT_TRUE(extra_->Go(kv_in_->MoveGoing()).ok());
    ASSERT_EQ(budget_->Use().free_bytes, static_cast<size_t>(engine::KvPageBytes(kExtra, kKv)));
    ExpectNoMemory();
  }
  void ExpectContent(RequestId id, int64_t blocks) {
    const BlockTable table = kv_in_->TableOf(id);
    for (int layer = 0; layer < kKv.num_layers; ++layer) {
      for (int64_t i = 0; i < blocks; ++i) {
        const std::vector<std::byte> expected = Content(id, layer, i);
        const auto* const block =
            BaseOf(layer) + (*table)[static_cast<size_t>(i)].value * kKv.BlockBytes();
        ASSERT_EQ(std::memcmp(block, expected.data(), expected.size()), 0)
            << "request " << id.serial << ", layer " << layer << ", block " << i;
      }
    }
  }

 private:
  std::byte* BaseOf(int layer) const {
    return static_cast<std::byte*>(layers_[static_cast<size_t>(layer)]);
  }
  // Of the extra blocks.
  void ExpectNoMemory() const {
    for (int layer = 0; layer < kKv.num_layers; ++layer) {
      std::vector<unsigned char> resident(static_cast<size_t>(kExtra * kKv.BlockBytes()) /
                                          engine::kDevicePageBytes);
      ASSERT_EQ(mincore(BaseOf(layer) + kOwn * kKv.BlockBytes(),
                        resident.size() * engine::kDevicePageBytes, resident.data()),
                0);
      for (const unsigned char page : resident) ASSERT_EQ(page & 1, 0);
    }
  }
  void Do(scheduler::AnswerOpenTransfer& effect) {
    opened_ = std::move(effect.reply);
    if (!opened_.status.ok()) return;
    transport_->OpenGrant(effect.grant);
    opened_.memory = engine::DescribeUnder(opened_.memory, effect.grant);
  }
  void Do(scheduler::CloseGrant& effect) { transport_->CloseGrant(effect.grant); }
  template <class Effect>
  void Do(Effect&) {}

  const std::unique_ptr<engine::Transport> transport_;
  engine::RegisteredDevice device_;
  const std::shared_ptr<engine::MemoryBudget> budget_;
  std::vector<void*> layers_;
  std::unique_ptr<engine::ExtraKv> extra_;
  std::unique_ptr<KvIn> kv_in_;
  scheduler::OpenTransferReply opened_;
  uint64_t calls_ = 0;
};

// The prefill side: prompts whose layers are written one by one.
class Writer {
 public:
  using Done = std::function<void(RequestId, std::vector<int64_t>)>;

  Writer(TestingNetwork* network, Done done)
      : pool_(network, kKv),
        sender_(pool_.transport.get(), kKv, pool_.regions, std::chrono::seconds(60),
                {.done =
                     [this, done = std::move(done)](HandoffKey key, std::vector<int64_t> bytes) {
                       Ended(key);
                       done(key.id, std::move(bytes));
                     },
                 .failed = [this](HandoffKey key, const absl::Status&) { Ended(key); },
                 .stopped = [this](HandoffKey key) { Ended(key); }}) {
    for (int32_t i = 0; i < kKv.num_blocks; ++i) free_.push_back({i});
  }

  bool HasRoom() const { return static_cast<int64_t>(free_.size()) >= kBlocksMax; }
  void Begin(RequestId id, int64_t tokens, engine::HandoffTarget target) {
    std::vector<HandoffBlock> blocks;
    for (size_t i = 0; i < target.blocks.size(); ++i) {
      blocks.push_back({static_cast<int64_t>(i), free_.back()});
      free_.pop_back();
    }
    sender_.Open({id, kEpoch}, blocks, tokens);
    under_way_[id] = {.blocks = std::move(blocks), .tokens = tokens};
    sender_.Grant({id, kEpoch},
                  {.targets = {std::move(target)},
                   .post_until = std::chrono::steady_clock::now() + std::chrono::minutes(10)});
  }
  // Computes one layer more of each prompt.
  void Compute() {
    for (auto& [id, prompt] : under_way_) {
      if (prompt.layers == kKv.num_layers) continue;
      for (const HandoffBlock& block : prompt.blocks) {
        const std::vector<std::byte> bytes = Content(id, prompt.layers, block.global);
        std::memcpy(pool_.Block(prompt.layers, block.local), bytes.data(), bytes.size());
      }
      sender_.Written({id, kEpoch}, prompt.layers++, prompt.tokens);
    }
  }
  void Pump() { sender_.Pump({}); }
  size_t under_way() const { return under_way_.size(); }

 private:
  struct Prompt {
    std::vector<HandoffBlock> blocks;
    int64_t tokens = 0;
    int layers = 0;  // computed
  };

  void Ended(HandoffKey key) {
    const auto prompt = under_way_.extract(key.id);
    for (const HandoffBlock& block : prompt.mapped().blocks) free_.push_back(block.local);
  }

  engine::TestingPool pool_;
  engine::HandoffSender sender_;
  std::vector<BlockId> free_;
  std::map<RequestId, Prompt> under_way_;
};

class GrowingPoolTest : public ::testing::TestWithParam<PoolKind> {
 protected:
  static constexpr int kRounds = 1000;

  void BeginOne() {
    if (!writer_.HasRoom()) return;
    auto spec = std::make_shared<scheduler::RequestSpec>();
    spec->id = {7, ++serial_};
    spec->prompt.assign(1 + random_() % (kBlocksMax * kKv.block_tokens - 1), 5);
    spec->max_tokens = 1;
    std::optional<engine::HandoffTarget> target = target_.Grant(spec);
    if (!target.has_value()) return;
    granted_in_extra_ += std::any_of(target->blocks.begin(), target->blocks.end(),
                                     [](BlockId block) { return block.value >= kOwn; });
    const auto tokens = static_cast<int64_t>(spec->prompt.size());
    blocks_[spec->id] = static_cast<int64_t>(target->blocks.size());
    coming_.insert(spec->id);
    writer_.Begin(spec->id, tokens, *std::move(target));
  }
  void Pump() {
    writer_.Pump();
    target_.Poll();
  }
  // Of a sequence that is here.
  void End(RequestId id) {
    coming_.erase(id);
    whole_.erase(id);
    target_.kv_in().Release(id, 0);
  }
  RequestId Pick(const std::set<RequestId>& ids) {
    return *std::next(ids.begin(), static_cast<std::ptrdiff_t>(random_() % ids.size()));
  }
  void Act() {
    switch (random_() % 6) {
      case 0:
      case 1:
        return BeginOne();
      case 2:
        return writer_.Compute();
      case 3:
        if (!whole_.empty()) End(Pick(whole_));
        return;
      case 4:
        if (!coming_.empty() && random_() % 3 == 0) End(Pick(coming_));
        return;
      default:
        Pump();
    }
  }
  // Until nobody writes into blocks that go. A writer that stands still is not waited for.
  void Leave(bool writer_stands_still) {
    target_.kv_in().Shrink();
    for (int i = 0;; ++i) {
      ASSERT_LT(i, 1'000'000) << "a handoff does not end";
      const KvIn::Going going = target_.kv_in().LookAtGoing();
      if (going.awaited == 0) break;
      if (writer_stands_still) {
        for (const RequestId id : going.coming) End(id);
        for (const RequestId id : going.stuck) End(id);
        stood_still_ += target_.kv_in().LookAtGoing().awaited > 0;
        break;
      }
      writer_.Compute();
      Pump();
    }
    while (target_.kv_in().LookAtGoing().movable > target_.kv_in().blocks().free) {
      End(Pick(whole_));  // preempted
    }
    moved_ += target_.kv_in().LookAtGoing().movable;
    target_.GiveBack();
  }
  void ExpectAllIsWell() {
    ASSERT_TRUE(target_.kv_in().CheckInvariants().ok()) << target_.kv_in().CheckInvariants();
    for (const RequestId id : whole_) target_.ExpectContent(id, blocks_.at(id));
  }

  TestingNetwork network_{GetParam()};
  Target target_{&network_};
  Writer writer_{&network_, [this](RequestId id, std::vector<int64_t> bytes) {
                   if (coming_.erase(id) == 0) return;  // it has ended meanwhile
                   target_.Commit(id, std::move(bytes));
                   whole_.insert(id);
                   ++handed_off_;
                 }};
  std::mt19937_64 random_{11};
  uint64_t serial_ = 0;
  std::map<RequestId, int64_t> blocks_;  // of the prompt
  std::set<RequestId> coming_, whole_;
  int64_t handed_off_ = 0, granted_in_extra_ = 0, moved_ = 0, stood_still_ = 0;
};

TEST_P(GrowingPoolTest, AThousandTimesWithHandoffsInFlightNoByteIsWrong) {
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(round);
    target_.Grow(random_() % 4 * engine::kDevicePageBytes * 8);
    for (auto acts = 4 + random_() % 16; acts > 0; --acts) Act();
    ASSERT_NO_FATAL_FAILURE(ExpectAllIsWell());
    ASSERT_NO_FATAL_FAILURE(Leave(random_() % 8 == 0));
    ASSERT_NO_FATAL_FAILURE(ExpectAllIsWell());
    for (auto acts = random_() % 4; acts > 0; --acts) Act();
    ASSERT_NO_FATAL_FAILURE(ExpectAllIsWell());
  }
  for (const RequestId id : std::set<RequestId>(whole_)) End(id);
  for (const RequestId id : std::set<RequestId>(coming_)) End(id);
  for (int i = 0;
       i < 1'000'000 && (writer_.under_way() > 0 || target_.kv_in().blocks().quarantined > 0);
       ++i) {
    writer_.Compute();
    Pump();
  }
  EXPECT_EQ(target_.kv_in().blocks(), (scheduler::BlockCounts{.free = kOwn, .total = kOwn}));
  EXPECT_GT(handed_off_, 1000);
  EXPECT_GT(granted_in_extra_, 500);
  EXPECT_GT(moved_, 500);
  EXPECT_GT(stood_still_, 20);
}

INSTANTIATE_TEST_SUITE_P(Transports, GrowingPoolTest,
                         ::testing::Values(PoolKind::kLoopback, PoolKind::kUcx),
                         [](const auto& info) { return engine::NameOf(info.param); });

}  // namespace
}  // namespace skein::services
