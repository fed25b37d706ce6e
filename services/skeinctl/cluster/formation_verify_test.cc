#include "services/skeinctl/cluster/formation_verify.h"

#include "gtest/gtest.h"

namespace skein::services {
namespace {

MemberNumbers Numbers(double tp, double sp, double own, double bytes, double blocks, double cpu) {
  MemberNumbers numbers;
  numbers.steps = {{{"tp", 2}, tp}, {{"sp", 2}, sp}, {{"own", 1}, own}};
  numbers.comm_bytes = {{2, bytes}};
  numbers.held_blocks = blocks;
  numbers.cpu_seconds = cpu;
  return numbers;
}

// Both ran 100 tp and 20 sp steps; the lead goes on by one while the others are read.
WatchedGroup Working() {
  WatchedGroup group;
  group.members = {{.instance = 1,
                    .name = "1",
                    .first = Numbers(10, 5, 3, 1e6, 8, 1.0),
                    .last = Numbers(110, 25, 3, 3e6, 40, 2.0)},
                   {.instance = 2,
                    .name = "2 (decode-1)",
                    .first = Numbers(60, 5, 9, 1e6, 8, 4.0),
                    .last = Numbers(161, 25, 9, 3e6, 41, 4.9)}};
  group.lead_first = Numbers(11, 5, 3, 1e6, 8, 1.0);
  group.lead_last = Numbers(111, 25, 3, 3e6, 40, 2.0);
  group.watched_s = 2;
  return group;
}

const FormationCheck& Find(const std::vector<FormationCheck>& checks, const std::string& name) {
  static const FormationCheck kNone;
  for (const FormationCheck& check : checks) {
    if (check.name == name) return check;
  }
  ADD_FAILURE() << name << " was not checked";
  return kNone;
}

void Expect(const WatchedGroup& group, const std::string& name, Verdict verdict,
            const std::string& part) {
  const std::vector<FormationCheck> checks = CheckGroup(group);
  const FormationCheck& check = Find(checks, name);
  EXPECT_EQ(check.verdict, verdict) << check.detail;
  EXPECT_NE(check.detail.find(part), std::string::npos) << check.detail;
}

TEST(FormationVerify, MembersThatWorkTogetherPass) {
  const std::vector<FormationCheck> checks = CheckGroup(Working());
  ASSERT_EQ(checks.size(), 4u);
  for (const FormationCheck& check : checks) {
    EXPECT_EQ(check.verdict, Verdict::kPassed) << check.name << ": " << check.detail;
  }
  EXPECT_EQ(VerdictOf(checks), Verdict::kPassed);
  EXPECT_EQ(Find(checks, "steps").detail, "each member ran the same steps: 100 tp, 20 sp in 2.0 s");
}

TEST(FormationVerify, AMemberThatRunsNoStepOfTheGroupFails) {
  WatchedGroup group = Working();
  group.members[1].last.steps = group.members[1].first.steps;
  Expect(group, "steps", Verdict::kFailed, "instance 2 (decode-1) ran no step of the group");
  EXPECT_EQ(VerdictOf(CheckGroup(group)), Verdict::kFailed);
}

TEST(FormationVerify, StepsAreEqualWithinThoseOfTheReadings) {
  WatchedGroup group = Working();  // the lead ran 99 to 101 tp steps, and up to 2 are in flight
  for (const double steps : {97, 103}) {
    group.members[1].last.steps[{"tp", 2}] = 60 + steps;
    Expect(group, "steps", Verdict::kPassed, "the same steps");
  }
  for (const double steps : {96, 104}) {
    group.members[1].last.steps[{"tp", 2}] = 60 + steps;
    Expect(group, "steps", Verdict::kFailed, "2 (decode-1) ran " + std::to_string(int(steps)));
  }
}

TEST(FormationVerify, StepsOfAnotherModeAreNotTheSame) {
  WatchedGroup group = Working();
  group.members[1].last.steps[{"sp", 2}] = 5;
  group.members[1].last.steps[{"tp", 2}] += 20;
  Expect(group, "steps", Verdict::kFailed, "ran 0 sp steps");
}

TEST(FormationVerify, StepsOfAGroupOfAnotherSizeDoNotCount) {
  WatchedGroup group = Working();
  for (WatchedMember& member : group.members) {
    member.first.steps = {{{"tp", 4}, 1}};
    member.last.steps = {{{"tp", 4}, 100}};
  }
  Expect(group, "steps", Verdict::kUnknown, "no step ran");
}

TEST(FormationVerify, AGroupThatIsIdleIsNeitherRightNorWrong) {
  WatchedGroup group = Working();
  for (WatchedMember& member : group.members) member.last = member.first;
  group.lead_first = group.lead_last = group.members[0].last;
  Expect(group, "steps", Verdict::kUnknown,
         "no step ran while it was watched: send requests and verify again");
  EXPECT_EQ(VerdictOf(CheckGroup(group)), Verdict::kUnknown);
  group.members[1].last.steps[{"own", 1}] += 12;
  Expect(group, "steps", Verdict::kUnknown, "ran 12 steps of their own batches");
  group.members[1].last.steps[{"tp", 2}] += 12;
  Expect(group, "steps", Verdict::kFailed,
         "2 (decode-1) ran 12 steps of the group, and its lead none");
}

TEST(FormationVerify, CollectivesMoveBytesAtEachMember) {
  WatchedGroup group = Working();
  group.members[1].last.comm_bytes[2] = 1e6;
  group.members[1].last.comm_bytes[4] = 9e9;  // another group's
  Expect(group, "bytes", Verdict::kFailed, "at instance 2 (decode-1)");
}

TEST(FormationVerify, BlocksAreThoseOfTheLead) {
  WatchedGroup group = Working();
  group.members[1].last.held_blocks = 48;
  Expect(group, "blocks", Verdict::kPassed, "40, 48");
  group.members[1].last.held_blocks = 49;
  Expect(group, "blocks", Verdict::kFailed, "at instance 2 (decode-1)");
  group.members[0].last.held_blocks = 1;
  group.members[1].last.held_blocks = 5;  // few: those of a step
  Expect(group, "blocks", Verdict::kPassed, "1, 5");
}

TEST(FormationVerify, CpuTimeIsThatOfTheLead) {
  WatchedGroup group = Working();
  group.members[1].last.cpu_seconds = 4.79;
  Expect(group, "cpu", Verdict::kFailed, "1.00, 0.79");
  group.members[0].last.cpu_seconds = 1.2;
  Expect(group, "cpu", Verdict::kUnknown, "too little");
}

TEST(FormationVerify, NothingIsComparedThatOwnStepsAddTo) {
  WatchedGroup group = Working();
  group.members[1].last.steps[{"own", 1}] += 5;
  group.members[1].last.held_blocks = 900;
  group.members[1].last.cpu_seconds = 90;
  Expect(group, "blocks", Verdict::kUnknown, "5 steps of their own");
  Expect(group, "cpu", Verdict::kUnknown, "5 steps of their own");
  EXPECT_EQ(VerdictOf(CheckGroup(group)), Verdict::kPassed);
}

TEST(FormationVerify, AMemberThatDoesNotAnswerFails) {
  WatchedGroup group = Working();
  group.members[1].read = absl::UnavailableError("no route");
  Expect(group, "steps", Verdict::kFailed,
         "instance 2 (decode-1) did not tell its numbers: no route");
}

TEST(FormationVerify, AFormationThatEndedMeanwhileIsUnknown) {
  v1::ListGroupsResponse now;
  now.add_groups()->add_formations()->set_epoch(7);
  std::vector<FormationChecks> checks = {{.epoch = 7, .checks = CheckGroup(Working())},
                                         {.epoch = 6, .checks = CheckGroup(Working())}};
  DropChanged(now, &checks);
  EXPECT_EQ(VerdictOf(checks[0].checks), Verdict::kPassed);
  EXPECT_EQ(VerdictOf(checks[1].checks), Verdict::kUnknown);
}

TEST(FormationVerify, NumbersAreReadFromAWorkersMetrics) {
  const auto numbers = MemberNumbersFrom(
      "# HELP skein_engine_steps_total Steps.\n"
      "skein_engine_steps_total{mode=\"tp\",model_name=\"m\",ranks=\"4\"} 12\n"
      "skein_engine_steps_total{mode=\"sp_tp\",model_name=\"m\",ranks=\"4\"} 3\n"
      "skein_engine_steps_total{mode=\"tp\",model_name=\"m\",ranks=\"2\"} 7\n"
      "skein_engine_steps_total{mode=\"own\",model_name=\"m\",ranks=\"1\"} 5\n"
      "skein_comm_bytes_total{model_name=\"m\",path=\"ipc\",ranks=\"4\"} 1e+06\n"
      "skein_comm_bytes_total{model_name=\"m\",path=\"host\",ranks=\"4\"} 5\n"
      "skein_kv_blocks{model_name=\"m\",state=\"free\"} 90\n"
      "skein_kv_blocks{model_name=\"m\",state=\"held\"} 10\n"
      "process_cpu_seconds_total 1.25\n");
  ASSERT_TRUE(numbers.ok()) << numbers.status();
  EXPECT_EQ(numbers->GroupSteps(4), 15);
  EXPECT_EQ(numbers->GroupSteps(2), 7);
  EXPECT_EQ(numbers->OwnSteps(), 5);
  EXPECT_EQ(numbers->CommBytes(4), 1000005);
  EXPECT_EQ(numbers->held_blocks, 10);
  EXPECT_EQ(numbers->cpu_seconds, 1.25);
  EXPECT_FALSE(MemberNumbersFrom("<html>").ok());
}

}  // namespace
}  // namespace skein::services
