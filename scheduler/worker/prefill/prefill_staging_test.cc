// PrefillCore and a decode side with staging buffers: when it asks for one, what it tells of the
// parts, when it gives it back.
#include <gtest/gtest.h>

#include "scheduler/worker/prefill/prefill_core.h"
#include "scheduler/worker/testing/core_testing.h"

namespace skein::scheduler {
namespace {

using testing::Of;
using testing::Spec;

class PrefillStagingTest : public ::testing::Test {
 protected:
  using Effects = std::vector<PrefillEffect>;

  static PrefillConfig Config() {
    PrefillConfig config;
    config.membership.identity = testing::Identity(Role::kPrefill, 10);
    config.membership.report_spacing_us = 0;
    config.membership.report_spacing_per_request_us = 0;
    config.batch = {.max_batch_tokens = 8};
    config.retry_us = 50;
    return config;
  }

  // One prompt of two blocks, computed at once, whose grant is staged.
  PrefillStagingTest() {
    Do(Tick{});
    Do(RegisterReplied{{absl::OkStatus(), {3}, 1'000'000'000}});
    Do(AssignCalled{{1}, {Spec(1), {5}, {1}}});
    Do(PlaceDecodeReplied{kId, {5}, {{}, {{5}, {4}, "d:1"}}});
    const Effects effects =
        Do(OpenTransferReplied{kId, {5}, {.lease_us = 900, .staging_slots = 3}});
    const StartHandoff start = Of<StartHandoff>(effects)[0];
    EXPECT_EQ(start.staging_slots, 3);
    EXPECT_TRUE(start.remote_blocks.empty());
    EXPECT_TRUE(Of<CallAcquireStagingBuffer>(effects).empty());  // there is nothing to put yet
  }
  Effects Do(const PrefillEvent& event) {
    Effects effects = core_.Handle(event, now_);
    EXPECT_TRUE(core_.CheckInvariants().ok()) << core_.CheckInvariants();
    for (const CallReport& report : Of<CallReport>(effects)) {
      for (const EndedRequest& ended : report.request.ended) ended_ = ended.status;
      for (const PrefillEffect& more : Do(ReportReplied{report.request.serial, {}})) {
        effects.push_back(more);
      }
    }
    return effects;
  }
  Effects Asked(uint64_t ask, absl::Status status = absl::OkStatus()) {
    return Do(AcquireStagingBufferReplied{kId, {5}, ask, {std::move(status), "buffer"}});
  }
  Effects Arrived(StagedBlock block) { return Do(HandoffPart{kId, {5}, {block}}); }
  Effects Taken(uint64_t part, absl::Status status = absl::OkStatus()) {
    return Do(TakePartReplied{kId, {5}, part, {std::move(status)}});
  }

  static constexpr RequestId kId{7, 1};
  TimeUs now_ = 0;
  std::optional<absl::Status> ended_;
  PrefillCore core_{Config()};
};

TEST_F(PrefillStagingTest, PartsAreToldOneCallAtATime) {
  Effects effects = Do(HandoffWaits{kId, {5}});
  EXPECT_EQ(Of<CallAcquireStagingBuffer>(effects)[0].request.ask, 1u);
  EXPECT_EQ(Of<CallAcquireStagingBuffer>(effects)[0].request.prefill, InstanceId{3});
  EXPECT_EQ(Of<UseStagingBuffer>(Asked(1))[0].memory, "buffer");
  effects = Arrived({0, 0, 0});
  EXPECT_EQ(Of<CallTakePart>(effects)[0].request.part, 1u);
  EXPECT_TRUE(Of<CallTakePart>(Arrived({1, 0, 1})).empty());
  EXPECT_TRUE(Of<CallTakePart>(Arrived({2, 1, 0})).empty());
  effects = Taken(1);
  EXPECT_EQ(Of<PartTaken>(effects)[0].blocks, (std::vector<StagedBlock>{{0, 0, 0}}));
  const TakePartRequest second = Of<CallTakePart>(effects)[0].request;
  EXPECT_EQ(second.part, 2u);
  EXPECT_EQ(second.blocks, (std::vector<StagedBlock>{{1, 0, 1}, {2, 1, 0}}));
  EXPECT_TRUE(Taken(1).empty());  // an answer that comes twice
  EXPECT_EQ(Of<PartTaken>(Taken(2))[0].blocks, second.blocks);
}

TEST_F(PrefillStagingTest, WhatIsNotAnsweredIsSaidAgainUnderItsOwnNumber) {
  Do(HandoffWaits{kId, {5}});
  EXPECT_TRUE(
      Of<CallAcquireStagingBuffer>(Asked(1, absl::ResourceExhaustedError("not yet"))).empty());
  now_ = 50;
  EXPECT_EQ(Of<CallAcquireStagingBuffer>(Do(Tick{}))[0].request.ask, 1u);
  Asked(1);
  Arrived({0, 0, 0});
  EXPECT_TRUE(Of<CallTakePart>(Taken(1, absl::DeadlineExceededError("late"))).empty());
  EXPECT_TRUE(Of<CallTakePart>(Arrived({1, 0, 1})).empty());
  now_ = 100;
  const Effects effects = Do(Tick{});
  EXPECT_EQ(Of<CallTakePart>(effects)[0].request.part, 1u);
  EXPECT_EQ(Of<CallTakePart>(effects)[0].request.blocks.size(), 1u);
}

TEST_F(PrefillStagingTest, AnIdleStagingBufferIsGivenBackAndAskedForAnew) {
  Do(HandoffWaits{kId, {5}});
  Asked(1);
  Effects effects = Do(HandoffIdle{kId, {5}});
  EXPECT_EQ(Of<CallReleaseStagingBuffer>(effects)[0].request.ask, 1u);
  EXPECT_TRUE(
      Of<CallAcquireStagingBuffer>(Do(HandoffWaits{kId, {5}})).empty());  // its return is not heard
  effects = Do(ReleaseStagingBufferReplied{kId, {5}, 1, {absl::UnavailableError("lost")}});
  EXPECT_TRUE(effects.empty());
  now_ = 50;
  EXPECT_EQ(Of<CallReleaseStagingBuffer>(Do(Tick{})).size(), 1u);
  effects = Do(ReleaseStagingBufferReplied{kId, {5}, 1, {}});
  EXPECT_EQ(Of<CallAcquireStagingBuffer>(effects)[0].request.ask, 2u);
  EXPECT_TRUE(Asked(1).empty());  // of the first acquisition
  EXPECT_EQ(Of<UseStagingBuffer>(Asked(2)).size(), 1u);
}

TEST_F(PrefillStagingTest, ARefusedPartEndsTheRequestWhenTheSenderHasStopped) {
  Do(HandoffWaits{kId, {5}});
  Asked(1);
  Arrived({0, 0, 0});
  EXPECT_EQ(Of<StopHandoff>(Taken(1, absl::FailedPreconditionError("no staging buffer"))).size(),
            1u);
  Do(StepDone{1, {}, {{40, "p", ""}}});
  const Effects effects = Do(HandoffStopped{kId, {5}});
  EXPECT_EQ(Of<CallAbort>(effects).size(), 1u);
  EXPECT_EQ(ended_->message(), "no staging buffer");
}

TEST_F(PrefillStagingTest, ADecodeWorkerThatCameBackIsNoFaultOfTheRequest) {
  Do(HandoffWaits{kId, {5}});
  Asked(1, absl::NotFoundError("no transfer of the request is open here"));
  Do(StepDone{1, {}, {{40, "p", ""}}});
  Do(HandoffStopped{kId, {5}});
  EXPECT_TRUE(absl::IsUnavailable(*ended_)) << *ended_;
}

TEST_F(PrefillStagingTest, ItWaitsForAStagingBufferAsLongAsItsLeaseIsRenewed) {
  Do(HandoffWaits{kId, {5}});
  Asked(1, absl::UnavailableError("gone"));
  now_ = 900;
  EXPECT_EQ(Of<StopHandoff>(Do(Tick{})).size(), 1u);
}

}  // namespace
}  // namespace skein::scheduler
