// A lead and its members over channels of random delay: whatever happens, no step runs at some
// ranks only (unless the group fails), all ranks sample alike, no block is lost, and every wait
// ends.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/mix64.h"
#include "scheduler/worker/group/feed_lead.h"
#include "scheduler/worker/group/feed_member.h"

namespace skein::scheduler {
namespace {

constexpr int64_t kTokensPerBlock = 4;
constexpr int64_t kBlocks = 24;
constexpr int32_t kVocabulary = 1000;
const FeedLimits kLimits = {.answer_us = 200'000, .step_us = 400'000};

// The next token: it depends on the whole sequence.
int32_t TokenAfter(const StepSequence& sequence) {
  uint64_t hash = sequence.id.serial;
  for (int64_t i = 0; i < sequence.position + sequence.count; ++i) {
    hash = Mix64((hash ^ static_cast<uint32_t>(sequence.TokenAt(i))) + kMix64Step);
  }
  return static_cast<int32_t>(hash % kVocabulary);
}

struct Rank {
  std::unique_ptr<BlockPool> pool = std::make_unique<BlockPool>(kBlocks);
  std::unique_ptr<GroupBatch> batch =
      std::make_unique<GroupBatch>(pool.get(), KvLayout{2}, kTokensPerBlock);
  std::unique_ptr<FeedMember> member;  // of all but rank 0
  std::optional<GroupStep> runs;
  std::deque<std::string> from_lead, to_lead;
  std::vector<uint64_t> ran;  // steps, in order
  bool dead = false;
  bool stopped = false;
  int64_t others_blocks = 0;  // taken by someone else at this rank
  std::optional<absl::Status> failed;
};

class Group {
 public:
  Group(int ranks, uint32_t seed) : random_(seed), ranks_(static_cast<size_t>(ranks)) {
    lead_ = std::make_unique<FeedLead>(kEpoch, ranks, ranks_[0].batch.get(), kLimits);
    for (int rank = 1; rank < ranks; ++rank) {
      At(rank).member = std::make_unique<FeedMember>(kEpoch, At(rank).batch.get(), kLimits);
    }
  }

  void Offer() {
    auto spec = std::make_shared<RequestSpec>();
    spec->id = {7, ++serial_};
    for (int64_t left = Between(1, 12); left > 0; --left) {
      spec->prompt.push_back(static_cast<int32_t>(Between(0, kVocabulary - 1)));
    }
    spec->max_tokens = Between(1, 10);
    specs_[serial_] = spec;
    for (Rank& rank : ranks_) rank.batch->Offer({{serial_}, spec, nullptr, 0, {}});
    waiting_.push_back(serial_);
  }

  // Anything that may happen next.
  void Move() {
    now_ += Between(0, 20);
    const int rank = static_cast<int>(Between(0, Size() - 1));
    switch (Between(0, 5)) {
      case 0:
        return Propose();
      case 1:
      case 2:
        return Deliver(rank, /*to_lead=*/Between(0, 1) == 0);
      case 3:
        return EndStep(rank);
      case 4:
        return Tick(rank);
      default:
        if (Between(0, 10) == 0) Squeeze(rank);
    }
  }

  // Until all that was offered has been answered; no faults.
  void RunToTheEnd() {
    for (int moves = 0; moves < 200'000 && (!waiting_.empty() || !handles_.empty()); ++moves) {
      Move();
    }
    EXPECT_TRUE(waiting_.empty() && handles_.empty());
  }

  // Every rank that lives hears that the group is over, in bounded time.
  void RunUntilFailed() {
    const auto over = [this] {
      for (const Rank& rank : ranks_) {
        if (!rank.dead && !rank.stopped && !rank.failed.has_value()) return false;
      }
      return true;
    };
    for (int moves = 0; moves < 200'000 && !over(); ++moves) Move();
    EXPECT_TRUE(over());
  }

  void Kill(int rank) {
    At(rank).dead = true;
    for (int other = 0; other < Size(); ++other) {
      if (other == 0 && rank != 0) {
        Act(0, [&](FeedEffects* effects) {
          lead_->Lost(rank, absl::UnavailableError("it died"), effects);
        });
      } else if (other != 0 && rank == 0) {
        Act(other, [&](FeedEffects* effects) {
          At(other).member->Lost(absl::UnavailableError("the lead died"), effects);
        });
      }
    }
  }
  void Stop(int rank) { At(rank).stopped = true; }
  void SampleWrongOnceAt(int rank) { wrong_ = rank; }

  // Safe at any time.
  void Check() const {
    for (const Rank& rank : ranks_) {
      EXPECT_TRUE(rank.batch->CheckInvariants().ok()) << rank.batch->CheckInvariants();
      EXPECT_TRUE(rank.pool->CheckInvariants().ok());
      for (size_t i = 0; i + 1 < rank.ran.size(); ++i) EXPECT_LT(rank.ran[i], rank.ran[i + 1]);
      if (rank.member != nullptr) {
        EXPECT_TRUE(rank.member->CheckInvariants().ok());
      }
    }
    EXPECT_TRUE(lead_->CheckInvariants().ok());
  }
  // All ranks ran the same steps, but for what the failed end cut off.
  void ExpectOneOrder() const {
    for (const Rank& rank : ranks_) {
      const size_t common = std::min(rank.ran.size(), ranks_[0].ran.size());
      for (size_t i = 0; i < common; ++i) EXPECT_EQ(rank.ran[i], ranks_[0].ran[i]);
    }
  }
  void ExpectAllBlocksAreFree() {
    for (Rank& rank : ranks_) {
      if (rank.runs.has_value()) rank.batch->Fail();
      rank.batch->Dissolve();
      EXPECT_EQ(rank.pool->Counts().free, kBlocks - rank.others_blocks);
    }
  }
  void ExpectRightAnswers() const {
    EXPECT_EQ(answers_.size(), specs_.size());
    for (const auto& [serial, answer] : answers_) {
      StepSequence alone{.id = {7, serial}, .spec = specs_.at(serial)};
      auto output = std::make_shared<std::vector<int32_t>>();
      alone.output = output;
      alone.count = static_cast<int64_t>(alone.spec->prompt.size());
      while (static_cast<int64_t>(output->size()) < alone.spec->max_tokens) {
        output->push_back(TokenAfter(alone));
        ++alone.count;
      }
      EXPECT_EQ(answer, *output) << "request " << serial;
    }
  }
  int refusals() const { return refusals_; }
  const std::optional<absl::Status>& failed(int rank) const {
    return ranks_[static_cast<size_t>(rank)].failed;
  }

 private:
  static constexpr uint64_t kEpoch = 3;

  int Size() const { return static_cast<int>(ranks_.size()); }
  Rank& At(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint32_t>(high - low + 1));
  }
  bool Frozen(int rank) { return At(rank).dead || At(rank).stopped; }

  template <class Action>
  void Act(int rank, const Action& action) {
    if (Frozen(rank)) return;
    FeedEffects effects;
    action(&effects);
    for (FeedEffect& effect : effects) {
      if (auto* send = std::get_if<SendFeed>(&effect)) {
        (rank == 0 ? At(send->rank).from_lead : At(rank).to_lead).push_back(Encode(send->message));
      } else if (auto* enter = std::get_if<EnterGroupStep>(&effect)) {
        EXPECT_FALSE(At(rank).runs.has_value()) << "one step at a time";
        At(rank).ran.push_back(enter->step.step);
        At(rank).runs = std::move(enter->step);
      } else if (std::get_if<StepRefused>(&effect) != nullptr) {
        ++refusals_;
      } else if (const auto* failed = std::get_if<GroupFailed>(&effect)) {
        EXPECT_FALSE(At(rank).failed.has_value()) << "said once";
        At(rank).failed = failed->why;
      }
    }
  }

  // A random plan of what may be: the lead is greedy, so that ranks are short.
  void Propose() {
    if (Frozen(0) || !lead_->MayPropose()) return;
    FeedPlan plan{.mode = Between(0, 1) == 0 ? StepMode{1, Size()} : StepMode{Size(), 1}};
    if (Between(0, 7) == 0) plan = {.mode = {}, .own_tokens = 8};
    std::map<uint32_t, uint64_t> left = handles_;
    for (const GroupBatch::Member& member : ranks_[0].batch->Members()) {
      if (member.output_tokens >= member.spec->max_tokens) {
        plan.removed.push_back(member.handle);
        answers_[left.at(member.handle)];
        left.erase(member.handle);
      } else if (member.blocks > 0 && Between(0, 15) == 0) {
        plan.preempted.push_back(member.handle);
      } else if (!plan.mode.own() && (member.Lacks() > 1 || Between(0, 7) == 0)) {
        plan.slices.push_back({member.handle, Between(0, member.Lacks())});
      }
    }
    uint32_t handle = last_handle_;
    if (!waiting_.empty() && left.size() < 5) {
      plan.added.push_back({++handle, {7, waiting_.front()}, {waiting_.front()}});
    }
    // The answers of what leaves: all is sampled once the steps before have ended.
    std::map<uint32_t, std::vector<int32_t>> whole;
    for (const uint32_t removed : plan.removed) {
      if (static_cast<int64_t>(ranks_[0].batch->OutputOf(removed)->size()) <
          specs_.at(handles_.at(removed))->max_tokens) {
        return;  // not yet
      }
      whole[removed] = *ranks_[0].batch->OutputOf(removed);
    }
    plan_ = plan;
    Act(0, [&](FeedEffects* effects) {
      const absl::Status proposed = lead_->Propose(plan, now_, effects);
      if (!proposed.ok()) {
        EXPECT_TRUE(absl::IsResourceExhausted(proposed)) << proposed;
        return;
      }
      proposed_ = whole;
      committed_size_ = ranks_[0].ran.size();
    });
  }

  // What the batch shows once a plan is committed.
  void Note() {
    std::map<uint32_t, uint64_t> now;
    for (const GroupBatch::Member& member : ranks_[0].batch->Members()) {
      now[member.handle] = member.spec->id.serial;
      last_handle_ = std::max(last_handle_, member.handle);
    }
    for (const auto& [handle, serial] : handles_) {
      if (!now.contains(handle)) answers_[serial] = proposed_.at(handle);
    }
    for (const auto& [handle, serial] : now) {
      if (!waiting_.empty() && waiting_.front() == serial) waiting_.pop_front();
    }
    handles_ = now;
  }

  void Deliver(int rank, bool to_lead) {
    if (rank == 0) return;
    std::deque<std::string>& queue = to_lead ? At(rank).to_lead : At(rank).from_lead;
    if (queue.empty() || Frozen(to_lead ? 0 : rank)) return;
    const absl::StatusOr<FeedMessage> message = DecodeFeed(std::as_bytes(std::span(queue.front())));
    queue.pop_front();
    ASSERT_TRUE(message.ok()) << message.status();
    Act(to_lead ? 0 : rank, [&](FeedEffects* effects) {
      if (to_lead) {
        lead_->Take(rank, *message, now_, effects);
      } else {
        At(rank).member->Take(*message, now_, effects);
      }
    });
    if (to_lead) Note();
  }

  void EndStep(int rank) {
    if (!At(rank).runs.has_value() || Frozen(rank)) return;
    const GroupStep step = *std::exchange(At(rank).runs, std::nullopt);
    std::vector<int32_t> sampled;
    for (const StepSequence& sequence : step.sequences) {
      if (!sequence.sample) continue;
      sampled.push_back(TokenAfter(sequence));
      if (wrong_ == rank) sampled.back() ^= 1;
    }
    if (wrong_ == rank && !sampled.empty()) wrong_ = -1;
    Act(rank, [&](FeedEffects* effects) {
      if (rank == 0) {
        lead_->StepEnded(absl::OkStatus(), sampled, now_, effects);
      } else {
        At(rank).member->StepEnded(absl::OkStatus(), sampled, 0, false, effects);
      }
    });
  }

  void Tick(int rank) {
    Act(rank, [&](FeedEffects* effects) {
      if (rank == 0) {
        lead_->Tick(now_, effects);
      } else {
        At(rank).member->Tick(now_, effects);
      }
    });
  }

  // Someone else takes or returns blocks at one rank.
  void Squeeze(int rank) {
    if (held_.contains(rank)) {
      At(rank).pool->Free(*held_.at(rank));
      At(rank).others_blocks -= static_cast<int64_t>(held_.at(rank)->size());
      held_.erase(rank);
    } else if (const int64_t free = At(rank).pool->Counts().free; free > 0) {
      held_[rank] = *At(rank).pool->Allocate(free);
      At(rank).others_blocks += free;
    }
  }

  std::mt19937 random_;
  TimeUs now_ = 1;
  std::vector<Rank> ranks_;
  std::unique_ptr<FeedLead> lead_;
  uint64_t serial_ = 0;
  uint32_t last_handle_ = 0;
  std::map<uint64_t, SpecPtr> specs_;
  std::deque<uint64_t> waiting_;
  std::map<uint32_t, uint64_t> handles_;  // in the lead's batch
  FeedPlan plan_;
  std::map<uint32_t, std::vector<int32_t>> proposed_;
  size_t committed_size_ = 0;
  std::map<uint64_t, std::vector<int32_t>> answers_;
  std::map<int, BlockTable> held_;
  int wrong_ = -1;
  int refusals_ = 0;
};

TEST(StepFeedGroup, AllRanksAnswerAsOneWould) {
  int refusals = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Group group(2 + static_cast<int>(seed % 3), seed);
    for (int i = 0; i < 12; ++i) group.Offer();
    group.RunToTheEnd();
    group.Check();
    group.ExpectOneOrder();
    group.ExpectRightAnswers();
    group.ExpectAllBlocksAreFree();
    refusals += group.refusals();
  }
  EXPECT_GT(refusals, 50) << "steps that a member was too short for";
}

TEST(StepFeedGroup, WhoeverDiesWheneverTheOthersLeaveInBoundedTime) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    const int ranks = 2 + static_cast<int>(seed % 3);
    Group group(ranks, seed);
    for (int i = 0; i < 12; ++i) group.Offer();
    for (uint32_t moves = seed * 7 % 400; moves > 0; --moves) group.Move();
    group.Kill(static_cast<int>(seed / 3) % ranks);
    group.RunUntilFailed();
    group.Check();
    group.ExpectOneOrder();
    group.ExpectAllBlocksAreFree();
  }
}

// A rank that is stopped sends nothing, and its death is not told. The next step ends the wait.
TEST(StepFeedGroup, ARankThatIsStoppedIsNotAwaitedForEver) {
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    Group group(3, seed);
    for (int i = 0; i < 40; ++i) group.Offer();
    for (uint32_t moves = seed * 7 % 400; moves > 0; --moves) group.Move();
    group.Stop(1);
    group.RunUntilFailed();
    group.Check();
    group.ExpectOneOrder();
  }
}

TEST(StepFeedGroup, RanksThatSampleDifferentlyAreFoundAtTheStepsEnd) {
  for (const int wrong : {0, 1, 2}) {
    Group group(3, 5);
    for (int i = 0; i < 12; ++i) group.Offer();
    group.SampleWrongOnceAt(wrong);
    group.RunUntilFailed();
    ASSERT_TRUE(group.failed(0).has_value());
    EXPECT_TRUE(absl::IsInternal(*group.failed(0))) << *group.failed(0);
  }
}

TEST(FeedMember, MessagesOfAnotherEpochAreIgnoredAndOrderIsKept) {
  BlockPool pool(4);
  GroupBatch batch(&pool, KvLayout{2}, kTokensPerBlock);
  FeedMember member(5, &batch, kLimits);
  FeedEffects effects;
  member.Take(FeedPlan{.epoch = 4, .step = 1, .mode = {1, 2}}, 0, &effects);
  member.Take(FeedEnd{4, absl::UnavailableError("test")}, 0, &effects);
  EXPECT_TRUE(effects.empty());
  member.Take(FeedPlan{.epoch = 5, .step = 2, .mode = {1, 2}}, 0, &effects);
  ASSERT_EQ(effects.size(), 2u);
  EXPECT_NE(std::get_if<GroupFailed>(&effects[1]), nullptr) << "step 1 is missing";
  EXPECT_TRUE(member.over());
}

}  // namespace
}  // namespace skein::scheduler
