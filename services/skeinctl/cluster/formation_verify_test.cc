#include "services/skeinctl/cluster/formation_verify.h"

#include <optional>

#include "gtest/gtest.h"

namespace skein::services {
namespace {

// A quarter of the blocks that are held is not of the group's sequences.
MemberNumbers Numbers(double tp, double sp, double own, double bytes, double blocks, double cpu) {
  MemberNumbers numbers;
  numbers.bound = {.sequences = 4, .blocks = blocks * 3 / 4, .blocks_alone = blocks * 3 / 2};
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
  group.kv_heads = 8;
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
  ASSERT_EQ(checks.size(), 5u);
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

// A group of `ranks` that works. Its lead says that one instance alone would hold `alone` blocks
// for its sequences; each member holds so many.
WatchedGroup Holding(int ranks, int kv_heads, BoundKv lead) {
  WatchedGroup group;
  group.kv_heads = kv_heads;
  MemberNumbers first, last;
  first.bound = BoundKv{};
  last.bound = lead;
  last.steps = {{{"tp", ranks}, 100}};
  last.comm_bytes = {{ranks, 1e6}};
  last.held_blocks = lead.blocks;
  for (int rank = 0; rank < ranks; ++rank) {
    group.members.push_back({.instance = static_cast<uint64_t>(rank),
                             .name = std::to_string(rank),
                             .first = first,
                             .last = last});
  }
  group.lead_first = first;
  group.lead_last = last;
  return group;
}

TEST(FormationVerify, AMemberHoldsItsPartOfWhatOneInstanceAloneWould) {
  Expect(Holding(4, 8, {.sequences = 5, .blocks = 52, .blocks_alone = 200}), "part",
         Verdict::kPassed,
         "blocks of the group's 5 sequences, the lead first: 52, 52, 52, 52; one instance alone "
         "would hold 200, and a member's part is 1/4");
  // A fifth less or more than 50, and a block for each sequence.
  for (const double blocks : {40, 65}) {
    WatchedGroup group = Holding(4, 8, {.sequences = 5, .blocks = 50, .blocks_alone = 200});
    group.members[2].last.bound->blocks = blocks;
    Expect(group, "part", Verdict::kPassed, "50, 50, " + std::to_string(int(blocks)) + ", 50");
  }
  for (const double blocks : {0, 39, 66, 200}) {
    WatchedGroup group = Holding(4, 8, {.sequences = 5, .blocks = 50, .blocks_alone = 200});
    group.members[2].last.bound->blocks = blocks;
    Expect(group, "part", Verdict::kFailed,
           "50, 50, " + std::to_string(int(blocks)) +
               ", 50; one instance alone would hold 200, and a member's part is 1/4; not 40 to 65 "
               "at instance 2");
  }
}

// Each holds as many blocks as the lead.
TEST(FormationVerify, AGroupOfWhichEachMemberHoldsEverythingIsNone) {
  const WatchedGroup group = Holding(4, 8, {.sequences = 5, .blocks = 200, .blocks_alone = 200});
  Expect(group, "blocks", Verdict::kPassed, "the lead first");
  Expect(group, "part", Verdict::kFailed, "not 40 to 65 at instance 0, 1, 2, 3");
  EXPECT_EQ(VerdictOf(CheckGroup(group)), Verdict::kFailed);
}

TEST(FormationVerify, WithFewKvHeadsSeveralMembersHoldTheSamePart) {
  Expect(Holding(4, 2, {.sequences = 5, .blocks = 100, .blocks_alone = 200}), "part",
         Verdict::kPassed, "part is 1/2 (the model has fewer KV heads than the group members)");
  Expect(Holding(4, 2, {.sequences = 5, .blocks = 50, .blocks_alone = 200}), "part",
         Verdict::kFailed, "not 80 to 125 at instance 0, 1, 2, 3");
  Expect(Holding(4, 1, {.sequences = 5, .blocks = 200, .blocks_alone = 200}), "part",
         Verdict::kUnknown, "the model has one KV head, so each member holds all of the KV");
  Expect(Holding(4, 0, {.sequences = 5, .blocks = 50, .blocks_alone = 200}), "part",
         Verdict::kUnknown, "the model's KV heads are not known");
}

// Sequences came while the members were read.
TEST(FormationVerify, AMemberIsComparedWithTheLeadBeforeItAndAfterIt) {
  WatchedGroup group = Holding(2, 8, {.sequences = 5, .blocks = 50, .blocks_alone = 100});
  group.members[1].last.bound->blocks = 73;
  Expect(group, "part", Verdict::kFailed, "not 40 to 65 at instance 1");
  group.lead_last.bound = BoundKv{.sequences = 6, .blocks = 58, .blocks_alone = 115};
  Expect(group, "part", Verdict::kPassed, "50, 73");  // at most 57.5, a fifth, and 6 blocks
}

// One block of the group has room for as many tokens as four blocks alone.
TEST(FormationVerify, SequencesOfAFewBlocksDoNotTell) {
  Expect(Holding(4, 8, {.sequences = 5, .blocks = 5, .blocks_alone = 11}), "part",
         Verdict::kUnknown,
         "too few blocks to tell: one instance alone would hold 11 for the group's 5 sequences");
  WatchedGroup group = Holding(4, 8, {.sequences = 0, .blocks = 0, .blocks_alone = 0});
  Expect(group, "part", Verdict::kUnknown, "too few blocks to tell");
  for (WatchedMember& member : group.members) {
    member.first.bound = BoundKv{.sequences = 5, .blocks = 50, .blocks_alone = 200};
  }
  group.lead_first = group.members[0].first;
  Expect(group, "part", Verdict::kPassed, "50, 50, 50, 50");  // as they were at the begin
}

TEST(FormationVerify, AMemberThatDoesNotTellItsPartIsUnknown) {
  WatchedGroup group = Working();
  for (WatchedMember& member : group.members) {
    member.first.bound = std::nullopt;
    member.last.bound = std::nullopt;
  }
  Expect(group, "part", Verdict::kUnknown, "instance 1 does not tell the KV");
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
  Expect(group, "part", Verdict::kPassed, "30, 31");  // of the group's sequences alone
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
      "skein_bound_sequences{model_name=\"m\"} 3\n"
      "skein_bound_kv_blocks{model_name=\"m\"} 8\n"
      "skein_bound_kv_blocks_alone{model_name=\"m\"} 29\n"
      "process_cpu_seconds_total 1.25\n");
  ASSERT_TRUE(numbers.ok()) << numbers.status();
  EXPECT_EQ(numbers->GroupSteps(4), 15);
  EXPECT_EQ(numbers->GroupSteps(2), 7);
  EXPECT_EQ(numbers->OwnSteps(), 5);
  EXPECT_EQ(numbers->CommBytes(4), 1000005);
  EXPECT_EQ(numbers->held_blocks, 10);
  EXPECT_EQ(numbers->cpu_seconds, 1.25);
  ASSERT_TRUE(numbers->bound.has_value());
  EXPECT_EQ(numbers->bound->sequences, 3);
  EXPECT_EQ(numbers->bound->blocks, 8);
  EXPECT_EQ(numbers->bound->blocks_alone, 29);
  const auto older = MemberNumbersFrom(
      "skein_kv_blocks{state=\"held\"} 10\n"
      "process_cpu_seconds_total 1.25\n");
  ASSERT_TRUE(older.ok()) << older.status();
  EXPECT_FALSE(older->bound.has_value());
  EXPECT_FALSE(MemberNumbersFrom("<html>").ok());
}

}  // namespace
}  // namespace skein::services
