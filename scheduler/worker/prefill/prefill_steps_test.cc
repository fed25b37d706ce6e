#include "scheduler/worker/prefill/prefill_steps.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "scheduler/worker/testing/core_testing.h"

namespace skein::scheduler {
namespace {

using Kind = PrefillRequest::Kind;
using Phase = PrefillRequest::Phase;

constexpr uint64_t kSelf = 3;
constexpr BatchLimits kLimits{.max_batch_tokens = 8};

RequestId Id(uint64_t serial) { return {7, serial}; }

class PrefillStepsTest : public ::testing::Test {
 protected:
  // A prompt of 8 tokens that computes, and has a decode place.
  void AddPlain(uint64_t serial, uint64_t sequence, const std::string& tenant = "") {
    PrefillRequest& request = Add(serial, sequence, Kind::kPlain, /*computes=*/true, tenant);
    steps_.Add(request);
    Place(request);
  }
  void Place(PrefillRequest& request) {
    requests_.SetPlaced(request, {{5}, {4}, "d:1"});
    steps_.Rank(request);
  }
  // A prompt of 8 tokens, in one piece of two members.
  void AddPlan(uint64_t serial, uint64_t sequence, bool computes = true, TimeUs estimated_us = 0,
               const std::string& tenant = "") {
    ASSERT_TRUE(plans_
                    .Add({.spec = SpecOf(serial, tenant),
                          .epoch = {5},
                          .sequence = {sequence},
                          .members = {{{1}, {7}, "w1", "c1"}, {{kSelf}, {kSelf + 6}, "w3", "c3"}},
                          .chunks = {{8, {0, 1}, estimated_us}}})
                    .ok());
    Add(serial, sequence, Kind::kMember, computes, tenant);
  }
  static SpecPtr SpecOf(uint64_t serial, const std::string& tenant) {
    const std::shared_ptr<RequestSpec> spec = testing::Spec(serial, 8);
    spec->tenant = tenant;
    return spec;
  }
  PrefillRequest& Add(uint64_t serial, uint64_t sequence, Kind kind, bool computes = true,
                      const std::string& tenant = "") {
    PrefillRequest& request = requests_.Add({.spec = SpecOf(serial, tenant),
                                             .epoch = {5},
                                             .sequence = {sequence},
                                             .kind = kind,
                                             .blocks_wanted = 2});
    std::vector<RequestId> gave_back;
    EXPECT_EQ(requests_.Admit(&gave_back), &request);
    if (computes) requests_.SetPhase(request, Phase::kComputing);
    return request;
  }
  // The request of the next step; none: no step. Of a step of several, the first one.
  std::optional<uint64_t> Next() {
    const std::optional<RunStep> step = steps_.Next(requests_, plans_, /*may_probe=*/false, now_);
    EXPECT_TRUE(steps_.CheckInvariants().ok()) << steps_.CheckInvariants();
    if (!step.has_value()) return std::nullopt;
    sequences_ = step->sequences;
    ++step_;
    return sequences_.front().id.serial;
  }
  void End(const absl::Status& status = absl::OkStatus()) {
    std::vector<StepResult> results(status.ok() ? sequences_.size() : 0);
    const auto ended = steps_.End({step_, status, results}, now_);
    ASSERT_TRUE(ended.has_value());
    for (const StepSequence& ran : ended->ran) {
      if (ran.ring != nullptr) plans_.Leave(ran.id, ran, ended->status.ok());
    }
    EXPECT_TRUE(steps_.CheckInvariants().ok()) << steps_.CheckInvariants();
  }

  TimeUs now_ = 0;
  uint64_t step_ = 0;
  std::vector<StepSequence> sequences_;
  PrefillRequests requests_{/*total_blocks=*/100, /*ahead=*/10, kLimits};
  SpPlans plans_{
      {.incarnation = {kSelf + 6}, .block_tokens = 4, .rank_tokens_max = 8, .total_blocks = 100}};
  PrefillSteps steps_{kLimits, {}, {.max_us = 700, .min_us = 100}};
};

TEST_F(PrefillStepsTest, PlainPromptsOfASmallerSequenceGoBeforeAPiece) {
  AddPlan(1, 20);
  AddPlain(2, 30);
  AddPlain(3, 10);
  for (const uint64_t serial : {3, 1, 2}) {
    EXPECT_EQ(Next(), serial);
    EXPECT_TRUE(steps_.InFlight(Id(serial)));
    EXPECT_EQ(Next(), std::nullopt) << "one at a time";
    End();
    EXPECT_FALSE(steps_.InFlight(Id(serial)));
    if (serial != 1) steps_.Remove(Id(serial));
  }
  EXPECT_EQ(Next(), std::nullopt);
  EXPECT_EQ(steps_.loop().steps(), 3u);
  EXPECT_EQ(steps_.prompt_tokens(), 8u + 4u + 8u) << "of the piece this instance's share";
}

TEST_F(PrefillStepsTest, APieceIsChargedToItsTenant) {
  AddPlan(1, 20, /*computes=*/true, /*estimated_us=*/0, "a");
  AddPlain(2, 30, "a");
  AddPlain(3, 40, "b");
  for (const uint64_t serial : {1, 3, 2}) {
    EXPECT_EQ(Next(), serial);
    End();
    if (serial != 1) steps_.Remove(Id(serial));
  }
}

TEST_F(PrefillStepsTest, WhileAPieceCannotRunPlainPromptsDo) {
  AddPlan(1, 20, /*computes=*/false);
  AddPlain(2, 30);
  EXPECT_EQ(Next(), 2u);
  End();
  steps_.Remove(Id(2));
  EXPECT_EQ(Next(), std::nullopt);
  requests_.SetPhase(requests_.at(Id(1)), Phase::kComputing);
  EXPECT_EQ(Next(), 1u);
}

TEST_F(PrefillStepsTest, UnplacedPromptsFillWhatPlacedOnesLeave) {
  PrefillRequest& unplaced = Add(1, 10, Kind::kPlain);
  steps_.Add(unplaced);
  AddPlain(2, 20);
  EXPECT_EQ(Next(), 2u);
  EXPECT_EQ(sequences_.size(), 1u) << "a step has 8 tokens";
  End();
  steps_.Remove(Id(2));
  EXPECT_EQ(Next(), 1u);
  End();
  steps_.Remove(Id(1));
  requests_.Erase(Id(1));
  PrefillRequest& placed = Add(1, 10, Kind::kPlain);
  steps_.Add(placed);
  Place(placed);
  AddPlain(3, 30);
  EXPECT_EQ(Next(), 1u) << "among placed ones the older goes first";
}

TEST_F(PrefillStepsTest, AnUnplacedPromptWaitsForEachPieceThatCanRun) {
  AddPlan(1, 20);
  steps_.Add(Add(2, 10, Kind::kPlain));
  EXPECT_EQ(Next(), 1u);
  End();
  EXPECT_EQ(Next(), 2u);
}

TEST_F(PrefillStepsTest, APieceEndsWithItsStepsTimeOrItsRequests) {
  AddPlan(1, 10);
  now_ = 100;
  EXPECT_EQ(Next(), 1u);
  EXPECT_EQ(sequences_.front().ring->deadline_us, 800);
  End();
  AddPlan(2, 20);
  requests_.at(Id(2)).deadline_us = 300;
  EXPECT_EQ(Next(), 2u);
  EXPECT_EQ(sequences_.front().ring->deadline_us, 300);
}

TEST_F(PrefillStepsTest, AnEstimateShortensThePiecesDeadline) {
  for (const auto& [estimated_us, deadline_us] :
       std::vector<std::pair<TimeUs, TimeUs>>{{1, 100}, {5, 100}, {20, 400}, {36, 700}}) {
    const auto serial = static_cast<uint64_t>(estimated_us);
    AddPlan(serial, serial * 10, /*computes=*/true, estimated_us);
    EXPECT_EQ(Next(), serial);
    EXPECT_EQ(sequences_.front().ring->deadline_us, deadline_us) << estimated_us;
    EXPECT_EQ(sequences_.front().ring->estimated_us, estimated_us);
    End();
    plans_.Forget(Id(serial));
  }
}

TEST_F(PrefillStepsTest, OnlyAPieceInFlightIsAborted) {
  AddPlan(1, 20);
  AddPlain(2, 10);
  EXPECT_EQ(Next(), 2u);
  EXPECT_FALSE(steps_.Abort(Id(2), now_).has_value());
  EXPECT_FALSE(steps_.Abort(Id(1), now_).has_value());
  End();
  steps_.Remove(Id(2));
  EXPECT_EQ(Next(), 1u);
  ASSERT_TRUE(steps_.Abort(Id(1), now_).has_value());
  End(absl::CancelledError("aborted"));
  EXPECT_TRUE(steps_.engine().ok());
  EXPECT_EQ(steps_.prompt_tokens(), 8u) << "what was aborted is not computed";
}

TEST_F(PrefillStepsTest, TheSequencesOfAnOverdueStepStayInItUntilItIsForgotten) {
  PrefillSteps steps(kLimits, {.step_timeout_us = 1000}, {.max_us = 700});
  steps.Add(Add(1, 10, Kind::kPlain));
  ASSERT_TRUE(steps.Next(requests_, plans_, /*may_probe=*/false, 0).has_value());
  ASSERT_TRUE(steps.engine().Overdue(1000));
  EXPECT_EQ(steps.FailOverdue().size(), 1u);
  EXPECT_TRUE(steps.InFlight(Id(1)));
  steps.ForgetStep();
  EXPECT_FALSE(steps.InFlight(Id(1)));
  EXPECT_FALSE(steps.engine().ok());
  EXPECT_FALSE(steps.Next(requests_, plans_, /*may_probe=*/false, 1000).has_value());
}

}  // namespace
}  // namespace skein::scheduler
