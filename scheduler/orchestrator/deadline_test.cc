// OrchestratorCore: whatever a request waits for, it ends by its deadline, and is cancelled where
// it may be.
#include <map>

#include "scheduler/orchestrator/testing/planning_testing.h"

namespace skein::scheduler {
namespace {

constexpr TimeUs kDeadlineUs = 5 * kSecondUs;

class DeadlineTest : public PlanningTest {
 protected:
  void UpWith(const char* policy) {
    Make(policy);
    max_requests_ = 2;
    prefill_ = UpPrefill(1)[0];
    max_requests_ = 8;
    decode_ = Up(Role::kDecode, 2);
  }
  Effects SubmitAlone(uint64_t serial) {
    auto spec = Spec(serial, 40);
    spec->want_prompt_logprobs = true;
    spec->deadline_us = kDeadlineUs;
    return Do(SubmitCalled{spec});
  }
  CallAssign Assigned(uint64_t serial) {
    const CallAssign assign = Of<CallAssign>(SubmitAlone(serial)).at(0);
    Answer(assign);
    held_[assign.instance].push_back({assign.request.spec->id, assign.request.epoch});
    return assign;
  }
  // Every instance lives on, and holds what it held.
  Effects PassUntil(TimeUs end) {
    Effects all;
    while (now_ < end) {
      for (const OrchestratorEffect& one : Until(std::min(end, now_ + kSecondUs))) {
        all.push_back(one);
      }
      for (const auto& [id, incarnation] : incarnations_) {
        free_blocks_ = id == decode_ ? decode_free_ : 100000;
        Report(id, held_[id]);
      }
    }
    return all;
  }
  void ExpectEndsInTime(uint64_t serial) {
    EXPECT_TRUE(Updates<Failed>(PassUntil(kDeadlineUs - 1)).empty());
    const Effects effects = PassUntil(kDeadlineUs);
    int ended = 0;
    for (const SendPlanUpdate& update : Of<SendPlanUpdate>(effects)) {
      const auto* failed = std::get_if<Failed>(&update.update);
      if (failed == nullptr || update.id != (RequestId{7, serial})) continue;
      ++ended;
      EXPECT_TRUE(absl::IsDeadlineExceeded(failed->status)) << failed->status;
    }
    EXPECT_EQ(ended, 1);
  }

  InstanceId prefill_;
  InstanceId decode_;
  int64_t decode_free_ = 100000;  // blocks
  std::map<InstanceId, std::vector<HeldRequest>> held_;
};

TEST_F(DeadlineTest, AssigningAndNeverAnswered) {
  UpWith("tetris");
  SubmitAlone(1);
  ASSERT_EQ(core_->Snapshot(now_).assigning, 1);
  ExpectEndsInTime(1);
}

TEST_F(DeadlineTest, AssignedAndNeverBegun) {
  UpWith("tetris");
  Assigned(1);
  ASSERT_EQ(core_->Snapshot(now_).assigned, 1);
  ExpectEndsInTime(1);
}

TEST_F(DeadlineTest, WaitingForDecodeRoom) {
  UpWith("tetris");
  const CallAssign assign = Assigned(1);
  decode_free_ = 0;
  Ask(assign, decode_, absl::ResourceExhaustedError("blocks"));
  ASSERT_EQ(core_->Snapshot(now_).waiting, 1);
  ExpectEndsInTime(1);
}

TEST_F(DeadlineTest, ReservingAndNeverOpened) {
  UpWith("tetris");
  const InstanceId other = Up(Role::kDecode, 3);
  const CallAssign assign = Assigned(1);
  const InstanceId first = assign.request.placed->decode;
  EXPECT_EQ(PlacedAt(Ask(assign, first, absl::UnavailableError("lost"))),
            first == other ? decode_ : other);
  ASSERT_EQ(core_->Snapshot(now_).reserving, 1);
  ExpectEndsInTime(1);
}

TEST_F(DeadlineTest, PlacedAndNeverEnded) {
  UpWith("tetris");
  const CallAssign assign = Assigned(1);
  Opened(decode_, assign);
  held_[decode_].push_back({.id = {7, 1}, .epoch = assign.request.epoch, .opened = true});
  ASSERT_EQ(core_->Snapshot(now_).placed, 1);
  ExpectEndsInTime(1);
}

TEST_F(DeadlineTest, ReplanningWhileAMemberNeverSaysThatItEnded) {
  UpWith("tetris");
  UpPrefill(3);
  auto spec = Spec(1, 4000);
  spec->deadline_us = kDeadlineUs;
  const auto assigns = Of<CallAssign>(Do(SubmitCalled{spec}));
  ASSERT_EQ(assigns.size(), 4u);
  for (const CallAssign& assign : assigns) {
    Answer(assign);
    held_[assign.instance].push_back({{7, 1}, assign.request.epoch});
  }
  held_[prefill_].clear();
  Report(prefill_, {}, {Ended(assigns[0], absl::AbortedError("group"))});
  ASSERT_EQ(core_->Snapshot(now_).planning, 1);
  ExpectEndsInTime(1);
}

TEST_F(DeadlineTest, Parked) {
  UpWith("tetris");
  Assigned(1);
  Assigned(2);
  SubmitAlone(3);
  ASSERT_EQ(core_->Snapshot(now_).parked, 1);
  ExpectEndsInTime(3);
}

TEST_F(DeadlineTest, QueuedForAChunk) {
  UpWith("rolling");
  UpPrefill(3);
  Submit(1, 40000);
  auto spec = Spec(2, 40000);
  spec->deadline_us = kDeadlineUs;
  Do(SubmitCalled{spec});
  ASSERT_EQ(core_->Snapshot(now_).planning, 1);
  ExpectEndsInTime(2);
}

}  // namespace
}  // namespace skein::scheduler
