#include "services/skeinctl/planning/decode_window.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace skein::services {
namespace {

// What ran at a target in a window of a second.
DecodeWindow WindowOf(int32_t instances, const std::string& mode, double steps, double tokens) {
  DecodeWindow window{.target = {7, instances}, .seconds = 1};
  const std::pair<std::string, int> kind(mode, instances);
  window.first.steps[kind] = 5;
  window.first.step_tokens[kind] = 55;
  window.last.steps[kind] = 5 + steps;
  window.last.step_tokens[kind] = 55 + tokens;
  return window;
}

TEST(DecodeWindow, ASampleIsTheMeanOfItsSteps) {
  const auto samples = SamplesOf({WindowOf(4, "tp", 100, 200)}, 4, 2, 10);
  ASSERT_TRUE(samples.ok()) << samples.status();
  ASSERT_EQ(samples->size(), 1u);
  EXPECT_EQ((*samples)[0].instances, 4);
  EXPECT_EQ((*samples)[0].mode, DecodeMode::kTp);
  EXPECT_EQ((*samples)[0].streams, 2);
  EXPECT_DOUBLE_EQ((*samples)[0].tokens, 2);
  EXPECT_DOUBLE_EQ((*samples)[0].seconds, 0.01);
  const auto alone = SamplesOf({WindowOf(1, "own", 50, 50)}, 1, 1, 10);
  ASSERT_TRUE(alone.ok()) << alone.status();
  ASSERT_EQ(alone->size(), 1u);
  EXPECT_EQ((*alone)[0].mode, DecodeMode::kAlone);
  EXPECT_DOUBLE_EQ((*alone)[0].seconds, 0.02);
}

TEST(DecodeWindow, AnInstanceThatIsLeftOverGivesNoSample) {
  const auto samples =
      SamplesOf({WindowOf(2, "tp", 100, 200), WindowOf(1, "own", 50, 50)}, 2, 3, 10);
  ASSERT_TRUE(samples.ok()) << samples.status();
  ASSERT_EQ(samples->size(), 1u);
  EXPECT_EQ((*samples)[0].instances, 2);
  EXPECT_EQ((*samples)[0].streams, 3);
  // Its tokens are those of some of the streams.
  EXPECT_FALSE(SamplesOf({WindowOf(2, "tp", 100, 200), WindowOf(1, "own", 50, 50)}, 2, 2, 10).ok());
  const auto only = SamplesOf({WindowOf(2, "tp", 0, 0), WindowOf(1, "own", 50, 50)}, 2, 1, 10);
  ASSERT_TRUE(only.ok()) << only.status();
  EXPECT_TRUE(only->empty());
}

TEST(DecodeWindow, StepsOfTheBaseThatWasOrderedAreItsOwn) {
  for (const int32_t base_tp : {1, 2, 4}) {
    const char* const ordered = base_tp == 1 ? "sp" : "sp_tp";
    for (const char* mode : {"sp", "sp_tp", "tp"}) {
      DecodeWindow window = WindowOf(8, mode, 100, 100);
      window.target.base_tp = base_tp;
      const auto samples = SamplesOf({window}, 8, 1, 10);
      if (mode == std::string("tp")) {
        ASSERT_TRUE(samples.ok()) << samples.status();
        EXPECT_EQ(samples->at(0).mode, DecodeMode::kTp);
        EXPECT_EQ(samples->at(0).base_tp, 1);
      } else if (mode == std::string(ordered)) {
        ASSERT_TRUE(samples.ok()) << samples.status();
        EXPECT_EQ(samples->at(0).mode, DecodeMode::kBase);
        EXPECT_EQ(samples->at(0).base_tp, base_tp);
      } else {
        EXPECT_EQ(samples.status(), absl::FailedPreconditionError(absl::StrCat(
                                        "100 steps ran in ", base_tp == 1 ? "SP x TP" : "SP",
                                        ", which was not ordered")));
      }
    }
  }
}

TEST(DecodeWindow, ATargetWithoutStreamsGivesNoSample) {
  const auto samples = SamplesOf({WindowOf(2, "tp", 100, 100), WindowOf(2, "tp", 0, 0)}, 2, 1, 10);
  ASSERT_TRUE(samples.ok()) << samples.status();
  EXPECT_EQ(samples->size(), 1u);
}

TEST(DecodeWindow, OtherRequestsAreSeenByTheirTokens) {
  for (const double tokens : {100.0, 300.0}) {
    const auto samples = SamplesOf({WindowOf(2, "tp", 100, tokens)}, 2, 2, 10);
    EXPECT_TRUE(absl::IsFailedPrecondition(samples.status())) << samples.status();
    EXPECT_NE(samples.status().message().find("2 streams ran"), std::string::npos);
  }
}

TEST(DecodeWindow, ABoundGroupRunsInOneModeAndNothingAlone) {
  DecodeWindow mixed = WindowOf(2, "tp", 100, 100);
  mixed.last.steps[{"sp", 2}] = 3;
  EXPECT_TRUE(absl::IsFailedPrecondition(SamplesOf({mixed}, 2, 1, 10).status()));
  DecodeWindow both = WindowOf(4, "tp", 100, 100);
  both.target.base_tp = 2;
  both.last.steps[{"sp_tp", 4}] = 3;
  EXPECT_TRUE(absl::IsFailedPrecondition(SamplesOf({both}, 4, 1, 10).status()));
  DecodeWindow own = WindowOf(2, "tp", 100, 100);
  own.last.steps[{"own", 1}] = 4;
  EXPECT_TRUE(SamplesOf({own}, 2, 1, 10).ok()) << "a step of no tokens only asks for free blocks";
  own.last.step_tokens[{"own", 1}] = 4;
  EXPECT_TRUE(absl::IsFailedPrecondition(SamplesOf({own}, 2, 1, 10).status()));
}

TEST(DecodeTargets, AreLeadsAndInstancesAlone) {
  v1::ListGroupsResponse response;
  v1::GroupStatus* group = response.add_groups();
  group->set_role(v1::ROLE_DECODE);
  group->set_model("m");
  auto* bound = group->add_formations();
  bound->set_stage("stands");
  bound->set_epoch(9);
  bound->add_members(3);
  bound->add_members(4);
  auto* alone = group->add_formations();
  alone->set_stage("stands");
  alone->add_members(5);
  alone->add_members(6);
  *response.add_groups() = *group;
  response.mutable_groups(1)->set_model("other");
  const auto targets = DecodeTargets(response, "m");
  ASSERT_TRUE(targets.ok()) << targets.status();
  EXPECT_EQ(*targets, (std::vector<DecodeTarget>{{3, 2}, {5, 1}, {6, 1}}));
  response.mutable_groups(0)->mutable_formations(0)->set_stage("releasing");
  EXPECT_TRUE(absl::IsFailedPrecondition(DecodeTargets(response, "m").status()));
}

TEST(StreamCounts, AreOneAndOneAnInstanceAndPowersOfTwoATarget) {
  EXPECT_EQ(StreamCounts(1, 4, 8), (std::vector<int64_t>{1, 2, 4, 8}));
  EXPECT_EQ(StreamCounts(2, 4, 4), (std::vector<int64_t>{1, 2, 4, 8}));
  EXPECT_EQ(StreamCounts(2, 3, 2), (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(StreamCounts(2, 4, 1), (std::vector<int64_t>{1, 2, 4}));
}

}  // namespace
}  // namespace skein::services
