#include "scheduler/worker/prefill/sp_plans.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "scheduler/worker/testing/core_testing.h"

namespace skein::scheduler {
namespace {

constexpr uint64_t kSelf = 3;  // instance i has incarnation i + 6

struct Chunk {
  int64_t tokens = 0;
  std::vector<uint64_t> instances;
  uint32_t tp = 1;
};

RequestId Id(uint64_t serial) { return {7, serial}; }

AssignRequest Plan(SpecPtr spec, const std::vector<Chunk>& chunks, uint64_t sequence,
                   uint32_t from = 0) {
  AssignRequest assign{.spec = std::move(spec), .epoch = {5}, .sequence = {sequence}};
  std::map<uint64_t, uint32_t> index;
  for (const Chunk& chunk : chunks) {
    PlanChunk out{.tokens = chunk.tokens, .members = {}, .tp = chunk.tp};
    for (const uint64_t instance : chunk.instances) {
      const auto [it, added] = index.emplace(instance, assign.members.size());
      if (added) {
        assign.members.push_back({{instance}, {instance + 6}, "w", absl::StrCat("c", instance)});
      }
      out.members.push_back(it->second);
    }
    assign.chunks.push_back(out);
  }
  assign.from_chunk = from;
  return assign;
}

// A table of local blocks 100, 101, …
std::vector<BlockId> Table(int64_t blocks) {
  std::vector<BlockId> table;
  for (int32_t i = 0; i < blocks; ++i) table.push_back({100 + i});
  return table;
}

class SpPlansTest : public ::testing::Test {
 protected:
  absl::Status Add(uint64_t serial, int64_t prompt_tokens, const std::vector<Chunk>& chunks,
                   uint64_t sequence) {
    absl::Status status = plans_.Add(Plan(testing::Spec(serial, prompt_tokens), chunks, sequence));
    Check();
    return status;
  }
  absl::Status Extend(uint64_t serial, int64_t prompt_tokens, const std::vector<Chunk>& chunks,
                      uint64_t sequence, uint32_t from) {
    absl::Status status =
        plans_.Extend(Plan(testing::Spec(serial, prompt_tokens), chunks, sequence, from));
    Check();
    return status;
  }
  // Computes the next piece of the plan whose turn it is, and says whose.
  uint64_t RunPiece(bool ok = true) {
    const std::optional<SpPlans::Turn> turn = plans_.Next();
    if (!turn.has_value()) return 0;
    SpPlan& plan = *plans_.Find(turn->id);
    plans_.Leave(turn->id, plan.Enter(Table(plan.slots()), /*deadline_us=*/700, /*now=*/50), ok);
    Check();
    return turn->id.serial;
  }
  void Check() { EXPECT_TRUE(plans_.CheckInvariants().ok()) << plans_.CheckInvariants(); }

  SpPlans plans_{
      {.incarnation = {kSelf + 6}, .block_tokens = 4, .rank_tokens_max = 8, .total_blocks = 10}};
};

TEST_F(SpPlansTest, PiecesRunInTheOrderOfTheAssignsThatBroughtThem) {
  EXPECT_TRUE(Add(1, 24, {{8, {1, 3}}}, 20).ok());
  EXPECT_TRUE(Add(2, 8, {{8, {1, 3}}}, 30).ok());
  EXPECT_TRUE(Add(3, 8, {{8, {1, 3}}}, 10).ok());
  EXPECT_TRUE(Extend(1, 24, {{8, {1, 3}}, {16, {1, 3}}}, 40, 1).ok());
  EXPECT_EQ(plans_.Next()->sequence, PlanSequence{10});
  EXPECT_EQ(RunPiece(), 3u);
  EXPECT_EQ(RunPiece(), 1u);
  EXPECT_EQ(RunPiece(), 2u);
  EXPECT_EQ(plans_.Next()->sequence, PlanSequence{40});
  EXPECT_EQ(RunPiece(), 1u);
  EXPECT_EQ(RunPiece(), 0u);
  EXPECT_EQ(plans_.Find(Id(1))->chunks_done(), 2u);
}

TEST_F(SpPlansTest, WhatWasStoppedHasNoTurn) {
  EXPECT_TRUE(Add(1, 8, {{8, {1, 3}}}, 10).ok());
  EXPECT_TRUE(Add(2, 8, {{8, {1, 3}}}, 20).ok());
  plans_.Stop(Id(1));
  Check();
  EXPECT_NE(plans_.Find(Id(1)), nullptr);
  EXPECT_EQ(plans_.Next()->id, Id(2));
  plans_.Forget(Id(1));
  plans_.Forget(Id(2));
  Check();
  EXPECT_EQ(plans_.Find(Id(1)), nullptr);
  EXPECT_FALSE(plans_.Next().has_value());
}

TEST_F(SpPlansTest, TheBlocksToComputeAreThoseOfThePlansThatRun) {
  EXPECT_EQ(plans_.BlocksToCompute(), 0);
  ASSERT_TRUE(Add(1, 16, {{16, {kSelf}}}, 10).ok());
  ASSERT_TRUE(Add(2, 8, {{8, {kSelf}}}, 20).ok());
  EXPECT_EQ(plans_.BlocksToCompute(), 6);
  EXPECT_EQ(RunPiece(), 1u);  // two blocks
  EXPECT_EQ(plans_.BlocksToCompute(), 4);
  plans_.Stop(Id(1));
  Check();
  EXPECT_EQ(plans_.BlocksToCompute(), 2);
  plans_.Forget(Id(2));
  Check();
  EXPECT_EQ(plans_.BlocksToCompute(), 0);
}

TEST_F(SpPlansTest, SlotsAreNumberedAsPiecesFillThem) {
  // Chunk 0 is of instance 1: one of its two blocks moves here before this instance's two.
  EXPECT_TRUE(Add(1, 22, {{8, {1}}, {14, {1, 3}}}, 10).ok());
  SpPlan& plan = *plans_.Find(Id(1));
  EXPECT_FALSE(plan.Leads());
  EXPECT_TRUE(plan.Whole());
  EXPECT_EQ(plan.slots(), 3);
  EXPECT_EQ(plan.BlocksToCompute(), 2);
  const std::vector<HandoffBlock> puts = plan.TakeNewPuts(Table(3));
  ASSERT_EQ(puts.size(), 2u);
  EXPECT_EQ(puts[0].local, BlockId{101});
  EXPECT_TRUE(plan.TakeNewPuts(Table(3)).empty()) << "each is named once";
  const StepSequence step = plan.Enter(Table(3), /*deadline_us=*/700, /*now=*/50);
  EXPECT_EQ(plan.chunk_since_us(), 50);
  EXPECT_EQ(step.ring->receive[0], std::vector<BlockId>{{100}});
  EXPECT_EQ(*step.blocks, (std::vector<BlockId>{{101}, {102}}));
  EXPECT_EQ(step.ring->deadline_us, 700);
  plans_.Leave(plan.id(), step, /*ok=*/true);
  EXPECT_EQ(plan.BlocksToCompute(), 0);
  EXPECT_EQ(plan.chunk_since_us(), kNever);
  EXPECT_FALSE(plan.NextChunk().has_value());
}

TEST_F(SpPlansTest, APlanWithoutItsLastChunksWantsBlocksForTheWholeRest) {
  EXPECT_TRUE(Add(1, 40, {{8, {3, 1}}}, 10).ok());
  const SpPlan& plan = *plans_.Find(Id(1));
  EXPECT_TRUE(plan.Leads());
  EXPECT_FALSE(plan.Whole());
  EXPECT_EQ(plan.slots(), 1);
  EXPECT_GT(plan.BlocksWanted(10), plan.slots());
  EXPECT_EQ(plan.BlocksWanted(2), 2) << "as many as there are";
  EXPECT_TRUE(Extend(1, 40, {{8, {3, 1}}, {32, {3, 1}}}, 20, 1).ok());
  EXPECT_EQ(plan.BlocksWanted(10), plan.slots());
}

TEST_F(SpPlansTest, TheFirstChunksAreThoseOfTheFirstAssign) {
  EXPECT_TRUE(Add(1, 24, {{8, {3}}, {8, {3}}}, 10).ok());
  EXPECT_TRUE(Extend(1, 24, {{8, {3}}, {8, {3}}, {8, {3}}}, 20, 2).ok());
  RunPiece();
  EXPECT_FALSE(plans_.Find(Id(1))->FirstChunksDone());
  RunPiece();
  EXPECT_TRUE(plans_.Find(Id(1))->FirstChunksDone());
}

TEST_F(SpPlansTest, OthersWaitInTheGroupsOfAllChunksAhead) {
  EXPECT_TRUE(Add(1, 24, {{8, {3, 1}}, {8, {3, 1}}, {8, {3, 1}}}, 10).ok());
  const SpPlan& plan = *plans_.Find(Id(1));
  EXPECT_EQ(plan.GroupsAhead(/*skip_next=*/false).size(), 3u);
  EXPECT_EQ(plan.GroupsAhead(/*skip_next=*/true).size(), 2u);
  RunPiece();
  EXPECT_EQ(plan.GroupsAhead(/*skip_next=*/false).size(), 2u);
  RunPiece(/*ok=*/false);
  EXPECT_EQ(plan.GroupsAhead(/*skip_next=*/false).size(), 1u);
  EXPECT_EQ(plan.chunks_done(), 1u);
}

// Instance 3 is rank 2 of the second chunk, so rank 0 of its second tensor group.
TEST_F(SpPlansTest, AChunkWithTpHasTensorGroups) {
  EXPECT_TRUE(
      Add(1, 32, {{8, {1, 2, 3, 4}}, {8, {1, 2, 3, 4}, 2}, {16, {1, 2, 3, 4}, 4}}, 10).ok());
  SpPlan& plan = *plans_.Find(Id(1));
  std::vector<int> tps;
  std::set<std::pair<uint64_t, uint64_t>> names;
  const auto add = [&names](GroupId name) { names.insert({name.high, name.low}); };
  while (plan.NextChunk().has_value()) {
    const StepSequence step = plan.Enter(Table(plan.slots()), /*deadline_us=*/700, /*now=*/50);
    tps.push_back(step.ring->tp);
    add(step.ring->group);
    add(step.ring->moves_group);
    if (step.ring->tp > 1) add(step.ring->tensor_group);
    plans_.Leave(plan.id(), step, /*ok=*/true);
    Check();
  }
  EXPECT_EQ(tps, (std::vector<int>{1, 2, 4}));
  EXPECT_EQ(names.size(), 8u) << "all have names of their own";
}

TEST_F(SpPlansTest, OthersWaitInTensorGroupsToo) {
  EXPECT_TRUE(Add(1, 16, {{8, {1, 2, 3, 4}, 2}, {8, {1, 2, 3, 4}, 4}}, 10).ok());
  SpPlan& plan = *plans_.Find(Id(1));
  const std::vector<BreakGroup> ahead = plan.GroupsAhead(/*skip_next=*/false);
  ASSERT_EQ(ahead.size(), 4u);
  const auto addresses = [&ahead](size_t i) { return absl::StrJoin(ahead[i].comm_addresses, " "); };
  EXPECT_EQ(addresses(0), "c3 c4");
  EXPECT_EQ(ahead[0].rank, 0);
  EXPECT_EQ(addresses(1), "c1 c2 c3 c4");
  EXPECT_EQ(ahead[1].rank, 2);
  EXPECT_EQ(addresses(2), "c1 c2 c3 c4");
  EXPECT_EQ(ahead[2].rank, 2);
  EXPECT_EQ(addresses(3), "c1 c2 c3 c4");
  const StepSequence step = plan.Enter(Table(plan.slots()), /*deadline_us=*/700, /*now=*/50);
  EXPECT_EQ(ahead[0].group, step.ring->tensor_group) << "as its steps name it";
  EXPECT_EQ(ahead[1].group, step.ring->group);
}

TEST_F(SpPlansTest, ATpThatDoesNotFitTheMembersIsRefused) {
  const std::vector<uint64_t> four = {1, 2, 3, 4};
  for (const uint32_t tp : {0u, 3u, 8u, 1u << 31}) {
    const absl::Status refused = Add(1, 16, {{8, four}, {8, four, tp}}, 10);
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_TRUE(absl::StrContains(refused.message(), absl::StrCat("chunk 1 has tp ", tp, ",")))
        << refused;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(Add(1, 8, {{8, {1, 2, 3}, 2}}, 10)));
  EXPECT_EQ(plans_.Find(Id(1)), nullptr);
  EXPECT_TRUE(Add(1, 16, {{8, four, 2}}, 10).ok());
  const absl::Status other = Extend(1, 16, {{8, four, 4}, {8, four}}, 20, 1);
  EXPECT_TRUE(absl::StrContains(other.message(), "chunk 0 differs")) << other;
}

TEST_F(SpPlansTest, WhatIsRefusedChangesNothing) {
  EXPECT_TRUE(absl::IsInvalidArgument(Add(1, 44, {{44, {3}}}, 10)));  // 11 blocks, of 10
  EXPECT_TRUE(absl::IsFailedPrecondition(Add(1, 8, {{8, {1, 2}}}, 10)));
  EXPECT_EQ(plans_.Find(Id(1)), nullptr);
  EXPECT_FALSE(plans_.Next().has_value());
  EXPECT_TRUE(Add(1, 24, {{8, {3}}}, 10).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(Extend(1, 24, {{12, {3}}, {12, {3}}}, 20, 1)));
  EXPECT_EQ(plans_.Find(Id(1))->slots(), 2);
  RunPiece();
  EXPECT_FALSE(plans_.Next().has_value());
}

}  // namespace
}  // namespace skein::scheduler
