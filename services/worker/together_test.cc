// Several workers' cores, engine threads and communicators (in-process) run SP plans
// together; the emulated engines' tags tell whether every block was where the cores said.
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include "engine/emulated/emulated_engine.h"
#include "gtest/gtest.h"
#include "services/worker/engine/ring_groups.h"
#include "services/worker/engine/sampling_codec.h"
#include "services/worker/testing/prefill_members.h"

namespace skein::services {
namespace {

using testing::kRankTokensMax;

constexpr int kBlockTokens = 4;
constexpr int32_t kVocabulary = 1 << 16;

engine::EmulatedOptions Options() {
  return {.kv = {{.num_layers = 2,
                  .kv_heads = 1,
                  .head_dim = 4,
                  .block_tokens = kBlockTokens,
                  .dtype = engine::DType::kF32},
                 128},
          .vocab_size = kVocabulary,
          .max_positions = 1024};
}

class TogetherTest : public ::testing::Test, protected testing::PrefillMembers {
 protected:
  TogetherTest()
      : PrefillMembers(4, kBlockTokens, [] { return *engine::EmulatedEngine::Create(Options()); }) {
  }

  void ExpectRight(scheduler::RequestId id) {
    const scheduler::RequestSpec& spec = *specs_.at(id);
    std::vector<int32_t> sampled;
    for (int member : members_of_.at(id)) {
      EXPECT_TRUE(members_[member]->ended.at(id).ok()) << members_[member]->ended.at(id);
      const auto it = members_[member]->sampled.find(id);
      if (it != members_[member]->sampled.end()) sampled.push_back(it->second);
    }
    EXPECT_EQ(sampled, engine::EmulatedContinuation(Options(), spec.prompt, 1, SamplingFrom(spec)));
  }
};

TEST_F(TogetherTest, RandomPlansSampleWhatOneInstanceWould) {
  std::vector<scheduler::RequestId> ids;
  ids.reserve(24);
  for (int i = 0; i < 24; ++i) ids.push_back(Submit());
  for (scheduler::RequestId id : ids) RunUntilEnded(id);
  for (scheduler::RequestId id : ids) ExpectRight(id);

  // Each step was counted, at each of the instances that ran it together; their shares are the
  // prompts.
  std::map<int, uint64_t> rings, tensor_rings;  // by ranks
  uint64_t tokens = 0;
  for (const auto& member : members_) {
    uint64_t counted = 0;
    for (const StepTotals& one : member->counts.Totals()) {
      counted += one.steps;
      tokens += one.tokens;
      if (one.mode == "ring") rings[one.ranks] += one.steps;
      if (one.mode == "ring_tp") tensor_rings[one.ranks] += one.steps;
    }
    EXPECT_EQ(counted, static_cast<uint64_t>(member->steps));
  }
  for (const auto& [ranks, steps] : rings) EXPECT_EQ(steps % ranks, 0u) << ranks;
  for (int ranks = 2; ranks <= 4; ++ranks) EXPECT_GT(rings[ranks], 0u) << ranks;
  for (const auto& [ranks, steps] : tensor_rings) EXPECT_EQ(steps % ranks, 0u) << ranks;
  for (const int ranks : {2, 4}) EXPECT_GT(tensor_rings[ranks], 0u) << ranks;
  EXPECT_EQ(tensor_rings.count(3), 0u) << "no tp but 1 divides 3 members";
  uint64_t prompts = 0;
  for (const auto& [id, spec] : specs_) prompts += spec->prompt.size();
  EXPECT_EQ(tokens, prompts);
}

TEST_F(TogetherTest, StepsThatFailAreNotCounted) {
  const auto refused =
      Submit([](scheduler::RequestSpec& spec) { spec.prompt.front() = kVocabulary; });
  RunUntilEnded(refused);
  int steps = 0;
  for (const auto& member : members_) {
    steps += member->steps;
    EXPECT_EQ(member->counts.Totals(), (std::vector<StepTotals>{{"own", 1, 0, 0}}));
  }
  EXPECT_GT(steps, 0);
}

// What the engines refuse ends at all members of the step, and those who would have joined in a
// later chunk find its group broken; what cannot be sampled ends at the one that samples. Plans
// beside it, some of the same members, never hear of it.
TEST_F(TogetherTest, APlanThatFailsHarmsNoOther) {
  std::vector<scheduler::RequestId> good, refused, unsampled;
  for (int i = 0; i < 6; ++i) {
    good.push_back(Submit());
    refused.push_back(
        Submit([](scheduler::RequestSpec& spec) { spec.prompt.back() = kVocabulary; }));
    good.push_back(Submit());
    unsampled.push_back(Submit([](scheduler::RequestSpec& spec) {
      spec.stop_token_ids.resize(kVocabulary);
      std::iota(spec.stop_token_ids.begin(), spec.stop_token_ids.end(), 0);
      spec.min_tokens = 1;
    }));
  }
  for (scheduler::RequestId id : good) RunUntilEnded(id);
  for (scheduler::RequestId id : good) ExpectRight(id);
  for (scheduler::RequestId id : refused) {
    RunUntilEnded(id);
    int named = 0;
    for (int member : members_of_.at(id)) {
      const absl::Status& end = members_[member]->ended.at(id);
      named += absl::IsInvalidArgument(end) ? 1 : 0;
      EXPECT_TRUE(absl::IsInvalidArgument(end) || absl::IsUnavailable(end)) << end;
    }
    EXPECT_GT(named, 0);
  }
  for (scheduler::RequestId id : unsampled) {
    RunUntilEnded(id);
    int failed = 0;
    for (int member : members_of_.at(id)) {
      const absl::Status& end = members_[member]->ended.at(id);
      EXPECT_TRUE(end.ok() || absl::IsInvalidArgument(end)) << end;
      failed += end.ok() ? 0 : 1;
    }
    EXPECT_EQ(failed, 1);
  }
}

TEST_F(TogetherTest, ACancelAtAnyMomentFreesAllMembers) {
  std::vector<scheduler::RequestId> ids;
  for (int i = 0; i < 24; ++i) {
    ids.push_back(Submit());
    const scheduler::RequestId victim = ids[Between(0, i)];
    for (int64_t events = Between(0, 6); events > 0 && !EndedAtAll(ids.back()); --events) {
      const auto [member, event] = inbox_.Pop();
      members_[member]->Take(event);
    }
    if (i % 2 == 0) continue;
    for (int member : members_of_.at(victim)) {
      members_[member]->Handle(scheduler::CancelCalled{{victim, {victim.serial}, "test"}});
    }
  }
  for (scheduler::RequestId id : ids) RunUntilEnded(id);
  for (scheduler::RequestId id : ids) {
    bool all_ok = true;
    for (int member : members_of_.at(id)) all_ok = all_ok && members_[member]->ended.at(id).ok();
    if (all_ok) ExpectRight(id);
  }
}

TEST_F(TogetherTest, AWorkerThatStopsIsNotWaitedFor) {
  scheduler::RequestId id = Submit();
  // Of one chunk, whose group all know, and more than one piece, so that nobody has begun the last
  // one when the worker stops.
  while (members_of_.at(id).size() < 3 || chunks_ != 1 ||
         specs_.at(id)->prompt.size() <= members_.size() * kRankTokensMax) {
    RunUntilEnded(id);
    id = Submit();
  }
  std::vector<int>& used = members_of_.at(id);
  members_[used[1]].reset();
  used.erase(used.begin() + 1);
  while (!EndedAtAll(id)) {
    const auto [member, event] = inbox_.Pop();
    if (members_[member] != nullptr) members_[member]->Take(event);
  }
  for (int member : used) {
    EXPECT_EQ(members_[member]->ended.at(id).code(), absl::StatusCode::kUnavailable);
  }
}

TEST_F(TogetherTest, EachMemberTellsHowItsExchangesWent) {
  members_[0]->why_through_host = "ipc: it may not";
  int alone = 0;
  int slow = 0;
  for (int round = 0; round < 20 || alone == 0 || slow == 0; ++round) {
    const scheduler::RequestId id = Submit();
    RunUntilEnded(id);
    const std::vector<int>& used = members_of_.at(id);
    for (const int member : used) {
      const std::optional<scheduler::RingPath>& ring = members_[member]->rings.at(id);
      if (used.size() == 1) {
        EXPECT_EQ(ring, std::nullopt);
        ++alone;
      } else if (member == 0) {
        EXPECT_EQ(ring, (scheduler::RingPath{true, "ipc: it may not"}));
        ++slow;
      } else {
        EXPECT_EQ(ring, scheduler::RingPath{});
      }
    }
  }
}

TEST_F(TogetherTest, OneMemberThatGivesUpEndsThePlanForAll) {
  for (int round = 0; round < 8; ++round) {
    const scheduler::RequestId id = Submit();
    const std::vector<int>& used = members_of_.at(id);
    const int quitter = used[Between(0, static_cast<int64_t>(used.size()) - 1)];
    members_[quitter]->Handle(scheduler::CancelCalled{{id, {id.serial}, "test"}});
    RunUntilEnded(id);  // nobody waits for its deadline
  }
}

TEST(RingGroupsTest, WithoutAFabricAStepWithOthersIsUnavailable) {
  RingGroups groups(nullptr);
  scheduler::RingPart part;
  part.comm_addresses = {"a", "b"};
  EXPECT_EQ(groups.Enter(1, part).status().code(), absl::StatusCode::kUnavailable);
  part.comm_addresses = {"a"};
  const auto alone = groups.Enter(2, part);
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(alone->comm, nullptr);
  groups.Leave(absl::OkStatus());
  groups.Abort(3, absl::CancelledError("test"));
  EXPECT_EQ(groups.Enter(3, part).status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace skein::services
