// Steps of bound groups of emulated devices: every rank a thread with an engine of its own.
#include <gtest/gtest.h>

#include <numeric>

#include "engine/comm/local/local_fabric.h"
#include "engine/comm/testing/ranks.h"
#include "engine/emulated/emulated_engine.h"
#include "engine/emulated/tags.h"
#include "engine/model/group/group_comms.h"
#include "engine/stepping/testing/mixed_steps.h"

namespace skein::engine {
namespace {

EmulatedOptions Options(int kv_heads) {
  return {.kv = {{.num_layers = 2,
                  .kv_heads = kv_heads,
                  .head_dim = 8,
                  .block_tokens = 4,
                  .dtype = DType::kBF16},
                 96},
          .vocab_size = 1 << 30,
          .max_positions = 4096};
}

std::vector<int32_t> Text(int tokens) {
  std::vector<int32_t> text(static_cast<size_t>(tokens));
  std::iota(text.begin(), text.end(), 100);
  return text;
}

TEST(EmulatedGroup, TagsOfEveryHeadLeadBackToTheirLink) {
  for (const uint64_t link : {uint64_t{0}, uint64_t{1}, kChainStart, ~uint64_t{0}}) {
    EXPECT_EQ(UnMix64(Mix64(link)), link);
    for (const int head : {0, 1, 7}) {
      EXPECT_EQ(LinkOfFirstWord(TagWord(link, 0, 0, head, 0), head), link);
    }
  }
}

// (ranks, KV heads): as many, more and fewer heads than ranks.
class EmulatedGroupTest : public ::testing::TestWithParam<std::pair<int, int>> {
 protected:
  EmulatedGroupTest() {
    for (int rank = 0; rank < ranks(); ++rank) {
      engines_.push_back(*EmulatedEngine::Create(options_));
    }
  }
  int ranks() const { return GetParam().first; }

  // The token after `tokens` at `position`, of every rank; rank r's blocks are `blocks` + r.
  std::vector<absl::StatusOr<int32_t>> Sample(std::span<const int32_t> tokens, int64_t position,
                                              std::vector<int32_t> blocks, int step,
                                              int wrong_block_at = -1) {
    std::vector<absl::StatusOr<int32_t>> sampled(static_cast<size_t>(ranks()), 0);
    std::vector<int> members(static_cast<size_t>(ranks()));
    std::iota(members.begin(), members.end(), 0);
    const std::vector<std::string> addresses = ranks_.Addresses(members);
    const auto run = [&](Communicator* all) {
      const int rank = all->Rank();
      auto comms = GroupComms::Make(ranks_.fabric(rank), GroupId{5, static_cast<uint64_t>(step)},
                                    addresses, rank, ModesOf(ranks()));
      if (!comms.ok()) return comms.status();
      std::vector<int32_t> own = blocks;
      for (int32_t& block : own) block += rank == wrong_block_at ? 1000 : rank;
      SequenceStep sequence;
      sequence.tokens = tokens;
      sequence.position = position;
      sequence.block_table = own;
      sequence.layout = KvLayout{ranks()};
      sequence.sample = true;
      sequence.sampling = &greedy_;
      sequence.token_index = static_cast<uint64_t>(step);
      sequence.prompt = prompt_;
      std::vector<SequenceResult> results;
      const std::vector<GroupMode> modes = ModesOf(ranks());
      const GroupPart part = comms->Part(modes[static_cast<size_t>(step) % modes.size()], Later());
      const absl::Status status = engines_[static_cast<size_t>(rank)]->StepTogether(
          part, {&sequence, 1}, nullptr, &results);
      auto& answer = sampled[static_cast<size_t>(rank)];
      if (!status.ok() || !results[0].status.ok()) {
        answer = status.ok() ? results[0].status : status;
      } else {
        answer = results[0].sampled.token;
      }
      return absl::OkStatus();
    };
    TestingRanks::Run(ranks_.GroupOfAll(), run);
    return sampled;
  }

  void ExpectAll(const std::vector<absl::StatusOr<int32_t>>& sampled, int32_t token) {
    for (const auto& one : sampled) {
      ASSERT_TRUE(one.ok()) << one.status();
      EXPECT_EQ(*one, token);
    }
  }

  const EmulatedOptions options_ = Options(GetParam().second);
  LocalHub hub_;
  TestingRanks ranks_{[this] { return hub_.MakeFabric(); }, GetParam().first};
  std::vector<std::unique_ptr<EmulatedEngine>> engines_;
  SamplingParams greedy_{.temperature = 0.0f};
  const std::vector<int32_t> prompt_ = Text(19);
};

TEST_P(EmulatedGroupTest, AllRanksSampleWhatOneDeviceWould) {
  const std::vector<int32_t> expected = EmulatedContinuation(options_, prompt_, 4, greedy_);
  const std::vector<int32_t> blocks = {40, 20, 60, 10, 70};
  ExpectAll(Sample(prompt_, 0, blocks, 0), expected[0]);
  for (int i = 0; i < 3; ++i) {
    ExpectAll(Sample({&expected[static_cast<size_t>(i)], 1}, 19 + i, blocks, i + 1),
              expected[static_cast<size_t>(i) + 1]);
  }
}

// A word of one rank's blocks decides what all ranks sample.
TEST_P(EmulatedGroupTest, AWrongWordAtOneRankChangesEveryRanksAnswer) {
  const std::vector<int32_t> expected = EmulatedContinuation(options_, prompt_, 2, greedy_);
  const std::vector<int32_t> blocks = {40, 20, 60, 10, 70};
  ExpectAll(Sample(prompt_, 0, blocks, 0), expected[0]);
  const int last = ranks() - 1;
  const KvRegion& region = engines_[static_cast<size_t>(last)]->KvRegions()[1];
  auto* const words = static_cast<uint64_t*>(region.base) +
                      (40 + last) * options_.kv.BlockBytes() / int64_t{sizeof(uint64_t)};
  *words ^= 1;
  const auto sampled = Sample({expected.data(), 1}, 19, blocks, 1);
  for (const auto& one : sampled) {
    ASSERT_TRUE(one.ok()) << one.status();
    EXPECT_NE(*one, expected[1]);
    EXPECT_EQ(*one, *sampled[0]);
  }
}

// The step feed asks each rank before any enters; a rank that refuses later ends the step for all.
TEST_P(EmulatedGroupTest, WhatOneRankAloneRefusesEndsTheStepAtAll) {
  int found_out = 0;
  for (const auto& one : Sample(prompt_, 0, {40, 20, 60, 10, 70}, 0, /*wrong_block_at=*/1)) {
    const bool disagreed = absl::IsFailedPrecondition(one.status());
    found_out += disagreed ? 1 : 0;
    EXPECT_TRUE(disagreed || absl::IsUnavailable(one.status())) << one.status();
  }
  EXPECT_GT(found_out, 0) << "others may come when the group is broken";
}

void ExpectMixedScores(const EmulatedOptions& options, int ranks) {
  const std::vector<int32_t> text = Text(75);
  std::vector<float> expected;
  for (const SampledToken& token : EmulatedPromptLogprobs(options, text, 0)) {
    expected.push_back(token.logprob);
  }
  std::vector<std::unique_ptr<EmulatedEngine>> owned;
  std::vector<StepEngine*> engines;
  for (int rank = 0; rank < ranks; ++rank) {
    owned.push_back(*EmulatedEngine::Create(options));
    engines.push_back(owned.back().get());
  }
  const auto scores = ScoreMixed(engines, text, 17);
  ASSERT_TRUE(scores.ok()) << scores.status();
  for (size_t rank = 0; rank < engines.size(); ++rank) {
    EXPECT_EQ(scores->alone[rank], expected);
    EXPECT_EQ(scores->group[rank], expected);
  }
  EXPECT_EQ(scores->ring, expected);
}

// Whatever the digests fold.
TEST_P(EmulatedGroupTest, StepsOfEveryKindInTurnsScoreAsTheTextAlone) {
  for (const int64_t digest_tokens : {0, 6}) {
    SCOPED_TRACE(digest_tokens);
    EmulatedOptions options = options_;
    options.digest_tokens = digest_tokens;
    ExpectMixedScores(options, ranks());
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, EmulatedGroupTest,
                         ::testing::Values(std::pair(2, 2), std::pair(2, 4), std::pair(4, 2)));

}  // namespace
}  // namespace skein::engine
