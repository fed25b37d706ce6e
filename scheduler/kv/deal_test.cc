#include "scheduler/kv/deal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

namespace skein::scheduler {
namespace {

using Blocks = std::vector<int32_t>;

std::vector<InstanceId> Instances(std::vector<uint64_t> values) {
  std::vector<InstanceId> out;
  for (uint64_t value : values) out.push_back({value});
  return out;
}

TEST(DealTest, ZigzagOverTwoRanks) {
  const auto pieces = Deal({.prompt_tokens = 30, .block_tokens = 4}, {{30, Instances({7, 8})}});
  ASSERT_TRUE(pieces.ok());
  ASSERT_EQ(pieces->size(), 1u);  // 8 blocks in 4 shards of 2
  const Piece& piece = pieces->front();
  EXPECT_EQ(piece.spans[0], (std::vector<TokenSpan>{{0, 8}, {24, 6}}));
  EXPECT_EQ(piece.spans[1], (std::vector<TokenSpan>{{8, 16}}));
  EXPECT_TRUE(piece.last && piece.ends_chunk && piece.moves.empty());
  EXPECT_EQ(piece.sampler, 0);
}

TEST(DealTest, FewerBlocksThanShardsLeaveSomeEmpty) {
  const auto pieces = Deal({.prompt_tokens = 9, .block_tokens = 4}, {{9, Instances({1, 2, 3, 4})}});
  const Piece& piece = pieces->front();
  EXPECT_EQ(piece.spans[2], (std::vector<TokenSpan>{{8, 1}}));
  EXPECT_TRUE(piece.spans[3].empty());
  EXPECT_EQ(piece.sampler, 2);
}

TEST(DealTest, HistoryIsHalvedWhenTheMembersDouble) {
  const auto pieces = Deal({.prompt_tokens = 64, .block_tokens = 4},
                           {{32, Instances({1, 2})}, {32, Instances({1, 2, 3, 4})}});
  ASSERT_EQ(pieces->size(), 2u);
  const Piece& second = (*pieces)[1];
  EXPECT_EQ(second.moves, (std::vector<Move>{{0, 2, {6, 7}}, {1, 3, {4, 5}}}));
  EXPECT_EQ(second.history, (std::vector<Blocks>{{0, 1}, {2, 3}, {6, 7}, {4, 5}}));
}

TEST(DealTest, LongChunksAreCutEvenlyWithinTheLimitOfARank) {
  const auto pieces = Deal({.prompt_tokens = 100, .block_tokens = 4, .rank_tokens_max = 13},
                           {{100, Instances({1, 2})}});
  ASSERT_EQ(pieces->size(), 5u);  // 25 blocks, 6 a piece at most
  for (const Piece& piece : *pieces) EXPECT_EQ(piece.ends_chunk, piece.index == 4);
}

TEST(DealTest, BadChunksAreNamed) {
  Dealer dealer({.prompt_tokens = 20, .block_tokens = 4});
  const auto refused = [&](int64_t tokens, std::vector<uint64_t> members, const char* why) {
    const absl::Status status = dealer.AddChunk({tokens, Instances(members)});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find(why), std::string::npos) << status;
  };
  refused(0, {1}, "0 tokens");
  refused(21, {1}, "beyond");
  refused(6, {1}, "within a block");
  refused(8, {}, "no members");
  refused(8, {1, 1}, "twice");
  EXPECT_TRUE(dealer.AddChunk({8, Instances({1, 2})}).ok());
  refused(12, {1, 3}, "leaves out instance 2");
  EXPECT_FALSE(dealer.Whole());
  EXPECT_TRUE(dealer.AddChunk({12, Instances({2, 1})}).ok());  // in another order of ranks
  EXPECT_TRUE(dealer.Whole());
}

struct Plan {
  DealSizes sizes;
  std::vector<DealtChunk> chunks;
};

Plan RandomPlan(std::mt19937_64& random) {
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  Plan plan;
  plan.sizes.block_tokens = between(1, 6);
  plan.sizes.prompt_tokens = between(1, 400);
  plan.sizes.rank_tokens_max = plan.sizes.block_tokens * between(1, 9) + between(0, 3);
  std::vector<InstanceId> pool(between(1, 12));
  for (size_t i = 0; i < pool.size(); ++i) pool[i] = {100 + i};
  std::shuffle(pool.begin(), pool.end(), random);
  int64_t left = plan.sizes.prompt_tokens;
  size_t members = between(1, static_cast<int64_t>(pool.size()));
  while (left > 0) {
    int64_t tokens = plan.sizes.block_tokens * between(1, 30);
    if (tokens > left || between(0, 4) == 0) tokens = left;
    plan.chunks.push_back({tokens, {pool.begin(), pool.begin() + members}});
    if (between(0, 5) == 0) {
      std::shuffle(plan.chunks.back().members.begin(), plan.chunks.back().members.end(), random);
    }
    left -= tokens;
    members = between(static_cast<int64_t>(members), static_cast<int64_t>(pool.size()));
  }
  return plan;
}

// Replays the pieces with its own copies and attention sets.
class Follower {
 public:
  explicit Follower(const Plan& plan) : plan_(plan) {}

  void Follow(const Piece& piece) {
    const bool grew = piece.members.size() > attends_.size();
    if (!grew) {
      EXPECT_TRUE(piece.moves.empty());
    }
    for (InstanceId member : piece.members) attends_[member];
    CheckMoves(piece);
    CheckHistory(piece, grew);
    Compute(piece);
  }

  const std::map<InstanceId, std::set<int32_t>>& copies() const { return copies_; }
  int32_t computed() const { return next_; }

 private:
  void CheckMoves(const Piece& piece) {
    for (const Move& move : piece.moves) {
      EXPECT_NE(move.from, move.to);
      EXPECT_FALSE(move.blocks.empty());
      EXPECT_TRUE(std::is_sorted(move.blocks.begin(), move.blocks.end()));
      for (int32_t block : move.blocks) {
        EXPECT_EQ(attends_[piece.members[move.from]].count(block), 1u)
            << "gives a block it does not have";
        EXPECT_TRUE(copies_[piece.members[move.to]].insert(block).second)
            << "already has the block";
      }
    }
  }

  void CheckHistory(const Piece& piece, bool grew) {
    size_t least = SIZE_MAX, most = 0, all = 0;
    std::set<int32_t> seen;
    for (size_t rank = 0; rank < piece.members.size(); ++rank) {
      const Blocks& history = piece.history[rank];
      EXPECT_TRUE(std::is_sorted(history.begin(), history.end()));
      least = std::min(least, history.size());
      most = std::max(most, history.size());
      all += history.size();
      seen.insert(history.begin(), history.end());
      auto& attends = attends_[piece.members[rank]];
      const std::set<int32_t> now(history.begin(), history.end());
      for (int32_t block : now) {
        EXPECT_EQ(copies_[piece.members[rank]].count(block), 1u)
            << "attends over a block it does not have";
      }
      // No instance both loses and gains blocks, so no move is superfluous.
      const bool loses = !std::includes(now.begin(), now.end(), attends.begin(), attends.end());
      const bool gains = !std::includes(attends.begin(), attends.end(), now.begin(), now.end());
      EXPECT_FALSE(loses && gains);
      if (!grew) {
        EXPECT_FALSE(loses || gains);
      }
      attends = now;
    }
    EXPECT_EQ(all, static_cast<size_t>(next_)) << "history sets overlap";
    EXPECT_EQ(seen.size(), all);
    if (grew) {
      EXPECT_LE(most, least + 1);
    }
  }

  void Compute(const Piece& piece) {
    const int64_t unit = plan_.sizes.block_tokens;
    std::map<int32_t, int> by;
    size_t least = SIZE_MAX, most = 0;
    for (size_t rank = 0; rank < piece.members.size(); ++rank) {
      int64_t tokens = 0, end = -1;
      for (const TokenSpan& span : piece.spans[rank]) {
        EXPECT_GT(span.count, 0);
        EXPECT_EQ(span.position % unit, 0);
        EXPECT_GT(span.position, end) << "adjacent spans are one";
        end = span.position + span.count;
        tokens += span.count;
      }
      EXPECT_LE(tokens, std::max(unit, plan_.sizes.rank_tokens_max));
      const Blocks blocks = BlocksOfSpans(piece.spans[rank], unit);
      least = std::min(least, blocks.size());
      most = std::max(most, blocks.size());
      for (int32_t block : blocks) {
        EXPECT_TRUE(by.emplace(block, rank).second) << "computed twice";
        attends_[piece.members[rank]].insert(block);
        copies_[piece.members[rank]].insert(block);
      }
    }
    EXPECT_LE(most, least + 1);
    for (const auto& [block, rank] : by) EXPECT_EQ(block, next_++);
    const bool last = next_ * unit >= plan_.sizes.prompt_tokens;
    EXPECT_EQ(piece.last, last);
    EXPECT_EQ(piece.sampler, last ? by.at(next_ - 1) : -1);
  }

  const Plan& plan_;
  std::map<InstanceId, std::set<int32_t>> attends_;
  std::map<InstanceId, std::set<int32_t>> copies_;
  int32_t next_ = 0;
};

TEST(DealTest, RandomPlansKeepEveryProperty) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 500 && !HasFailure(); ++round) {
    const Plan plan = RandomPlan(random);
    const auto pieces = Deal(plan.sizes, plan.chunks);
    ASSERT_TRUE(pieces.ok()) << pieces.status();
    Follower follower(plan);
    for (const Piece& piece : *pieces) follower.Follow(piece);
    const int64_t unit = plan.sizes.block_tokens;
    EXPECT_EQ(follower.computed(), (plan.sizes.prompt_tokens + unit - 1) / unit);
    EXPECT_TRUE(pieces->back().last);
    Dealer dealer(plan.sizes);
    for (const DealtChunk& chunk : plan.chunks) ASSERT_TRUE(dealer.AddChunk(chunk).ok());
    for (const auto& [instance, copies] : follower.copies()) {
      EXPECT_EQ(BlocksToFill(dealer, instance), static_cast<int64_t>(copies.size()));
    }
  }
}

TEST(DealTest, ChunksThatComeLaterChangeNothingBefore) {
  std::mt19937_64 random(6);
  for (int round = 0; round < 100; ++round) {
    const Plan plan = RandomPlan(random);
    const auto whole = Deal(plan.sizes, plan.chunks);
    Dealer rolling(plan.sizes);
    size_t next = 0;
    for (const DealtChunk& chunk : plan.chunks) {
      ASSERT_TRUE(rolling.AddChunk(chunk).ok());
      while (const auto piece = rolling.Next()) {
        ASSERT_LT(next, whole->size());
        EXPECT_EQ(*piece, (*whole)[next++]);
      }
    }
    EXPECT_EQ(next, whole->size());
  }
}

TEST(DealTest, AnUnknownRestIsForTheLastChunksMembers) {
  Dealer dealer({.prompt_tokens = 40, .block_tokens = 4});
  ASSERT_TRUE(dealer.AddChunk({8, Instances({1})}).ok());
  EXPECT_EQ(BlocksToFill(dealer, {1}), 10);
  ASSERT_TRUE(dealer.Next().has_value());
  EXPECT_EQ(BlocksToFill(dealer, {1}), 8);
  ASSERT_TRUE(dealer.AddChunk({16, Instances({1, 2})}).ok());
  EXPECT_EQ(BlocksToFill(dealer, {2}), 5);  // one of two moved, two of four, two of the rest
}

}  // namespace
}  // namespace skein::scheduler
