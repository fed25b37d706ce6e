#include "scheduler/orchestrator/groups/formation_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "scheduler/vocabulary/mix64.h"

namespace skein::scheduler::orchestrator {
namespace {

constexpr FormationPolicyConfig kConfig = {.bind_sequences = 1,
                                           .release_sequences = 4,
                                           .min_dwell_us = 10 * kSecondUs,
                                           .min_gain = 1.05,
                                           .dedicated_priority = 5};

// "0+4 2+2": the subsets that are bound.
std::string Text(const FormationChoice& choice) {
  std::vector<std::string> subsets;
  for (const FormationChoice::Bound& bound : choice.bound) {
    subsets.push_back(absl::StrCat(bound.subset.first, "+", bound.subset.size));
  }
  return absl::StrJoin(subsets, " ");
}

std::string WhyNot(const FormationChoice& choice, const std::string& formation) {
  for (const FormationChoice::Rejected& rejected : choice.rejected) {
    if (rejected.formation == formation) return rejected.why;
  }
  return "";
}

bool Chooses(const FormationChoice& choice, const Subset& subset) {
  return std::any_of(choice.bound.begin(), choice.bound.end(),
                     [&](const FormationChoice::Bound& bound) { return bound.subset == subset; });
}

class FormationPolicyTest : public ::testing::Test {
 protected:
  FormationPolicyTest() {
    load_.members.resize(4);
    load_.sizes = {{1, 1000}, {2, 2000, 1.5}, {4, 4000, 2.0}};
  }

  FormationChoice Choose() const { return ChooseFormation(config_, load_, now_); }
  // Makes the choice present, as the switch would.
  std::string Follow() {
    const FormationChoice choice = Choose();
    std::vector<Subset> before, after;
    for (const GroupLoad::Present& present : load_.bound) before.push_back(present.subset);
    load_.bound.clear();
    for (const FormationChoice::Bound& bound : choice.bound) {
      after.push_back(bound.subset);
      load_.bound.push_back({bound.subset, bound.reason});
    }
    if (before != after) {
      load_.since_us = now_;
      ++switches_;
    }
    return Text(choice);
  }
  std::string FollowAfter(TimeUs later) {
    now_ += later;
    return Follow();
  }
  // Sequences that run at each member, and requests that wait for the group.
  void Load(int64_t running, int64_t waiting) {
    for (GroupLoad::Member& member : load_.members) member.running_sequences = running;
    load_.waiting_requests = waiting;
  }

  FormationPolicyConfig config_ = kConfig;
  TimeUs now_ = 1000 * kSecondUs;
  GroupLoad load_;
  int switches_ = 0;
};

TEST_F(FormationPolicyTest, QuietBindsAndABurstReleases) {
  EXPECT_EQ(Follow(), "0+4");
  EXPECT_EQ(Choose().bound[0].reason, BindReason::kLoad);
  Load(0, 40);
  EXPECT_EQ(FollowAfter(kConfig.min_dwell_us), "");
  Load(2, 0);  // between the thresholds
  EXPECT_EQ(FollowAfter(100 * kSecondUs), "");
  Load(1, 0);
  EXPECT_EQ(FollowAfter(1), "0+4");
  Load(3, 3);
  EXPECT_EQ(FollowAfter(100 * kSecondUs), "0+4");
  Load(3, 4);
  EXPECT_EQ(FollowAfter(1), "");
}

TEST_F(FormationPolicyTest, SaysWhy) {
  const FormationChoice quiet = Choose();
  EXPECT_EQ(quiet.why,
            "quiet: 0.00 sequences an instance, at most 1.00; bound(4) makes tokens 2.00 times as "
            "fast");
  EXPECT_EQ(WhyNot(quiet, "independent"), "the group is quiet");
  Load(5, 0);
  const FormationChoice busy = Choose();
  EXPECT_EQ(busy.why, "busy: 5.00 sequences an instance, at least 4.00");
  EXPECT_EQ(WhyNot(busy, "bound(4)"), "the group is busy");
  Load(2, 0);
  const FormationChoice between = Choose();
  EXPECT_EQ(between.why,
            "neither quiet nor busy: 2.00 sequences an instance, between 1.00 and 4.00");
  EXPECT_EQ(WhyNot(between, "bound(4)"), "the group is not quiet");
  load_.since_us = now_ - 1'500'000;
  EXPECT_EQ(WhyNot(Choose(), "bound(4)"),
            "the present formation is 1.5 s old, and kept for 10.0 s");
}

// A burst shows in the prompts that wait before it shows in the number of sequences.
TEST_F(FormationPolicyTest, PromptsThatWaitMakeItBusy) {
  config_.release_waiting_tokens = 1000;
  EXPECT_EQ(Follow(), "0+4");
  Load(2, 0);
  load_.waiting_tokens = 3999;
  EXPECT_EQ(FollowAfter(100 * kSecondUs), "0+4");
  EXPECT_EQ(Choose().why,
            "neither quiet nor busy: 1000 tokens of prompts wait at an instance, between 500 and "
            "1000");
  EXPECT_EQ(Choose().release, Switch::kSequential);
  load_.waiting_tokens = 4000;
  EXPECT_EQ(FollowAfter(1), "");
  EXPECT_EQ(Choose().release, Switch::kSequential);
  Load(0, 0);
  load_.waiting_tokens = 2000;  // half of it: not quiet yet
  EXPECT_EQ(FollowAfter(100 * kSecondUs), "");
  EXPECT_EQ(Choose().why,
            "neither quiet nor busy: 500 tokens of prompts wait at an instance, between 500 and "
            "1000");
  EXPECT_EQ(Choose().release, Switch::kSequential);
  load_.waiting_tokens = 1999;
  EXPECT_EQ(Choose().release, Switch::kHard);
  EXPECT_EQ(FollowAfter(1), "0+4");
  config_.release_waiting_tokens = 0;
  load_.waiting_tokens = 1'000'000;
  EXPECT_EQ(FollowAfter(100 * kSecondUs), "0+4");
  EXPECT_EQ(Choose().release, Switch::kSequential);
}

// A few requests that come together are no burst: the tokens wait for less than the dwell.
TEST_F(FormationPolicyTest, WaitingPromptsDoNotFlapWithinTheDwell) {
  config_.release_waiting_tokens = 1000;
  uint64_t random = 7;
  for (int i = 0; i < 100'000; ++i) {
    load_.waiting_tokens = static_cast<int64_t>(Mix64(random += kMix64Step) % 8000);
    FollowAfter(kSecondUs / 10);
  }
  EXPECT_LE(switches_, 1000);
  EXPECT_GE(switches_, 900);
}

TEST_F(FormationPolicyTest, DoesNotFlapWithinTheDwell) {
  uint64_t random = 7;
  for (int i = 0; i < 100'000; ++i) {
    Load(static_cast<int64_t>(Mix64(random += kMix64Step) % 8), 0);
    FollowAfter(kSecondUs / 10);
  }
  // 10,000 s, in which the load crosses both thresholds every few ticks.
  EXPECT_LE(switches_, 1000);
  EXPECT_GE(switches_, 900);
}

TEST_F(FormationPolicyTest, DoesNotFlapBetweenTheThresholds) {
  uint64_t random = 7;
  for (int i = 0; i < 10'000; ++i) {
    Load(1 + static_cast<int64_t>(Mix64(random += kMix64Step) % 3), 1);
    FollowAfter(kSecondUs);
  }
  EXPECT_EQ(switches_, 0);
}

TEST_F(FormationPolicyTest, WithoutAGainItStaysIndependent) {
  load_.sizes = {{1, 1000}, {2, 2000}, {4, 4000}};
  EXPECT_EQ(Follow(), "");
  EXPECT_EQ(Choose().why,
            "the profile of this model and device names no size that gains by binding; skeinctl "
            "profile measures it");
  EXPECT_EQ(WhyNot(Choose(), "bound(2)"),
            "the profile of this model and device does not say that it gains");
  load_.sizes = {{1, 1000}, {2, 2000, 1.2}, {4, 4000, 1.04}};
  EXPECT_EQ(Follow(), "0+2 2+2");
  EXPECT_EQ(WhyNot(Choose(), "bound(4)"), "its gain is 1.04, less than 1.05");
}

TEST_F(FormationPolicyTest, ALoneInstanceStaysAlone) {
  load_.members.resize(1);
  load_.highest_priority = 9;
  EXPECT_EQ(Follow(), "");
  EXPECT_EQ(Choose().why, "the group has no second instance");
  load_.members.clear();
  EXPECT_EQ(Follow(), "");
}

TEST_F(FormationPolicyTest, MembersThatMakeNoSubsetWorkAlone) {
  load_.members.resize(3);
  EXPECT_EQ(Follow(), "0+2");
}

TEST_F(FormationPolicyTest, ALongRequestBindsTheSmallestSizeThatFits) {
  Load(5, 0);
  load_.members[0].running_tokens = 900;
  load_.members[2].running_tokens = 100;
  load_.longest_tokens = 1000;
  EXPECT_EQ(Follow(), "");
  load_.longest_tokens = 1001;
  load_.since_us = now_;  // it does not wait
  EXPECT_EQ(Follow(), "2+2");
  EXPECT_EQ(Choose().bound[0].reason, BindReason::kLength);
  EXPECT_EQ(Choose().why,
            "a request of 1001 tokens fits bound(2) (2000 tokens), but nothing smaller");
  load_.members[2].running_tokens = 2000;
  EXPECT_EQ(FollowAfter(kSecondUs), "2+2");  // it is there already
  load_.longest_tokens = 4000;
  EXPECT_EQ(FollowAfter(kSecondUs), "0+4");
  load_.longest_tokens = 1500;
  EXPECT_EQ(FollowAfter(kSecondUs), "0+4");  // which is large enough
}

TEST_F(FormationPolicyTest, WhatALongRequestBoundIsReleasedAfterIt) {
  Load(2, 0);  // neither quiet nor busy
  load_.longest_tokens = 1001;
  EXPECT_EQ(Follow(), "0+2");
  load_.longest_tokens = 0;
  EXPECT_EQ(FollowAfter(kConfig.min_dwell_us - 1), "0+2");
  EXPECT_EQ(FollowAfter(1), "");
}

TEST_F(FormationPolicyTest, WhatRunsALongRequestStaysBoundUntilItHasEnded) {
  Load(5, 0);  // busy
  load_.bound = {{{0, 2}}, {{2, 2}, BindReason::kLoad, /*long_tokens=*/1500}};
  EXPECT_EQ(Text(Choose()), "2+2");
  EXPECT_EQ(Choose().why, "a request of 1500 tokens runs in it, which fits no instance alone");
  EXPECT_EQ(Choose().bound[0].reason, BindReason::kLoad);
  load_.bound[0].long_tokens = 1200;
  EXPECT_EQ(Text(Choose()), "0+2 2+2");
  load_.bound[1].long_tokens = 0;
  load_.longest_tokens = 2000;
  EXPECT_EQ(Text(Choose()), "0+2") << "the one that waits fits there";
  load_.members[1].serves = false;
  EXPECT_EQ(Text(Choose()), "2+2") << "a member leaves";
  load_.members[1].serves = true;
  load_.longest_tokens = 0;
  load_.pinned = {{0, 1}};
  EXPECT_EQ(Text(Choose()), "") << "an operator wants it so";
}

TEST_F(FormationPolicyTest, ALongerRequestWaitsForThoseThatRun) {
  Load(2, 2);
  load_.bound = {{{0, 2}, BindReason::kLength, /*long_tokens=*/2000}};
  load_.longest_tokens = 3000;
  EXPECT_EQ(Text(Choose()), "0+2");
  EXPECT_TRUE(Choose().too_long.ok());
  EXPECT_EQ(Choose().rejected.back().why,
            "a request of 3000 tokens waits for it until other long ones have ended");
  load_.members.resize(8);
  EXPECT_EQ(Text(Choose()), "0+2 4+4");
}

TEST_F(FormationPolicyTest, WhatCannotBeBoundIsNotChosen) {
  load_.sizes.pop_back();
  load_.blocked[{0, 2}] = "unequal pools";
  EXPECT_EQ(Text(Choose()), "2+2");
  EXPECT_EQ(WhyNot(Choose(), "bound(2)"), "unequal pools");
  Load(5, 0);
  load_.longest_tokens = 2000;
  EXPECT_EQ(Text(Choose()), "2+2");
  load_.longest_tokens = 0;
  load_.highest_priority = 5;
  EXPECT_EQ(Text(Choose()), "2+2");
  load_.blocked[{2, 2}] = "a stray";
  EXPECT_EQ(Text(Choose()), "");
  load_.longest_tokens = 2000;
  EXPECT_EQ(Text(Choose()), "");
  EXPECT_TRUE(Choose().too_long.ok()) << "it may pass";
  EXPECT_EQ(WhyNot(Choose(), "bound(2)"), "the group is busy");
  load_.pinned = {{0, 2}};
  EXPECT_EQ(Text(Choose()), "0+2") << "who carries it out says why not";
}

TEST_F(FormationPolicyTest, ASubsetMayHoldMoreThanAnotherOfItsSize) {
  Load(5, 0);
  load_.tokens_max[{2, 2}] = 3000;
  load_.longest_tokens = 2500;
  EXPECT_EQ(Text(Choose()), "2+2");
  load_.bound = {{{0, 2}, BindReason::kLength, /*long_tokens=*/1500}};
  EXPECT_EQ(Text(Choose()), "0+2 2+2");
  load_.longest_tokens = 1500;
  EXPECT_EQ(Text(Choose()), "0+2");
}

// The order has changed since it was bound.
TEST_F(FormationPolicyTest, NothingIsBoundAcrossWhatRunsALongRequestOutOfPlace) {
  load_.members.resize(3);
  load_.bound = {{{1, 2}, BindReason::kLength, /*long_tokens=*/2000}};
  load_.longest_tokens = 1500;
  EXPECT_EQ(Text(Choose()), "");
  load_.members.resize(5);
  load_.longest_tokens = 0;
  load_.sizes.pop_back();
  EXPECT_EQ(Text(Choose()), "");
  load_.members.resize(6);
  EXPECT_EQ(Text(Choose()), "4+2");
}

TEST_F(FormationPolicyTest, ALongRequestNeedsNoGain) {
  load_.sizes = {{1, 1000}, {2, 2000}, {4, 4000}};
  load_.longest_tokens = 3000;
  EXPECT_EQ(Follow(), "0+4");
  load_.longest_tokens = 0;
  EXPECT_EQ(FollowAfter(kConfig.min_dwell_us - 1), "0+4");
  EXPECT_EQ(FollowAfter(1), "");
}

TEST_F(FormationPolicyTest, TooLongForTheWidestIsRefused) {
  load_.longest_tokens = 4001;
  const FormationChoice choice = Choose();
  EXPECT_EQ(choice.too_long.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(choice.too_long.message(),
            "a request of 4001 tokens is longer than the limit of 4000 tokens of bound(4), the "
            "widest formation of this group");
  EXPECT_EQ(Text(choice), "0+4");  // as if there were no such request
  load_.members.resize(3);
  EXPECT_EQ(Choose().too_long.message(),
            "a request of 4001 tokens is longer than the limit of 2000 tokens of bound(2), the "
            "widest formation of this group");
  load_.longest_tokens = 2000;
  EXPECT_TRUE(Choose().too_long.ok());
}

TEST_F(FormationPolicyTest, NoNeedBindsAMemberThatLeaves) {
  Load(2, 2);  // neither quiet nor busy
  load_.longest_tokens = 2000;
  load_.members[1].serves = false;
  EXPECT_EQ(Follow(), "2+2");
  load_.members[1].serves = true;
  load_.members[2].serves = false;
  now_ += 20 * kSecondUs;
  EXPECT_EQ(Follow(), "0+2") << "what it is bound with goes, too";
  load_.members[0].serves = false;
  EXPECT_EQ(Choose().too_long.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(FormationPolicyTest, ALongRequestDoesNotWaitForWhatIsPinnedAndDrains) {
  Load(2, 2);
  load_.members.resize(8);
  load_.pinned = {{0, 4}};
  load_.longest_tokens = 3000;
  EXPECT_EQ(Text(Choose()), "0+4");
  load_.members[1].serves = false;
  EXPECT_EQ(Text(Choose()), "0+4 4+4");
}

TEST_F(FormationPolicyTest, PinnedWins) {
  load_.pinned = {{0, 1}, {1, 1}, {2, 1}, {3, 1}};
  EXPECT_EQ(Follow(), "");
  EXPECT_EQ(Choose().why, "pinned by an operator");
  load_.longest_tokens = 1001;
  load_.highest_priority = 9;
  EXPECT_EQ(Follow(), "");
  EXPECT_EQ(Choose().too_long.message(),
            "a request of 1001 tokens is longer than the limit of 1000 tokens of independent, the "
            "widest formation of this group with its pins");
  load_.pinned = {{0, 4}};
  load_.since_us = now_;
  Load(50, 50);
  EXPECT_EQ(Follow(), "0+4");
  EXPECT_EQ(Choose().bound[0].reason, BindReason::kPin);
  EXPECT_TRUE(Choose().too_long.ok());
  load_.sizes = {{1, 1000}};
  EXPECT_EQ(FollowAfter(100 * kSecondUs), "0+4");
}

TEST_F(FormationPolicyTest, WhatIsNotPinnedFollowsTheLoad) {
  load_.pinned = {{0, 1}};
  load_.sizes = {{1, 1000}, {2, 2000, 1.5}};
  EXPECT_EQ(Follow(), "2+2");
  load_.longest_tokens = 1500;
  EXPECT_EQ(Follow(), "2+2");
  load_.pinned = {{0, 8}, {2, 2}};
  EXPECT_EQ(FollowAfter(100 * kSecondUs), "0+2 2+2");
  EXPECT_EQ(WhyNot(Choose(), "bound(8)"),
            "members 0 to 7 of 4 are pinned, but cannot be bound any more");
}

TEST_F(FormationPolicyTest, AHighPriorityGetsABoundGroupOfItsOwn) {
  Load(5, 3);
  load_.members[0].running_tokens = 10;
  load_.highest_priority = 4;
  EXPECT_EQ(Follow(), "");
  load_.highest_priority = 5;
  load_.since_us = now_;  // it does not wait
  EXPECT_EQ(Follow(), "2+2");
  EXPECT_EQ(Choose().why, "a request of priority -5 gets a bound group");
  load_.members[2].running_tokens = 99;
  EXPECT_EQ(FollowAfter(kSecondUs), "2+2");
  EXPECT_EQ(FollowAfter(100 * kSecondUs), "2+2");
  load_.highest_priority.reset();
  EXPECT_EQ(FollowAfter(1), "");
}

// Urgent requests follow one another: their group is not bound anew for each.
TEST_F(FormationPolicyTest, AGroupForAHighPriorityIsKeptForAWhileAfterTheLast) {
  Load(5, 3);
  load_.highest_priority = 5;
  EXPECT_EQ(Follow(), "0+2");
  now_ += 100 * kSecondUs;
  load_.highest_priority = 4;  // not urgent
  load_.urgent_us = now_ - 1'500'000;
  EXPECT_EQ(Follow(), "0+2");
  EXPECT_EQ(Choose().bound[0].reason, BindReason::kPriority);
  EXPECT_EQ(Choose().why,
            "the last urgent request was there 1.5 s ago, and its group is kept for 10.0 s");
  load_.members[1].serves = false;
  EXPECT_EQ(Text(Choose()), "");
  load_.members[1].serves = true;
  Load(0, 0);
  EXPECT_EQ(Text(Choose()), "0+4") << "load binds all, and they get that";
  Load(5, 3);
  EXPECT_EQ(FollowAfter(kConfig.min_dwell_us - 1'500'001), "0+2");
  EXPECT_EQ(FollowAfter(1), "");
  EXPECT_EQ(FollowAfter(1), "") << "none is bound for it";
}

TEST_F(FormationPolicyTest, AHighPriorityDoesNotTakeMoreThanHalfOfASmallGroup) {
  Load(5, 3);
  load_.sizes = {{1, 1000}, {2, 2000, 1.5}};
  load_.highest_priority = 5;
  for (const size_t members : {2, 3}) {
    load_.members.resize(members);
    EXPECT_EQ(Text(Choose()), "");
    EXPECT_EQ(Choose().rejected.back().why,
              "a request of priority -5 waits, but the group is too small: others keep half");
  }
}

TEST_F(FormationPolicyTest, AHighPriorityUsesWhatIsBoundByLoad) {
  load_.highest_priority = 5;
  EXPECT_EQ(Follow(), "0+4");
  Load(2, 0);
  EXPECT_EQ(FollowAfter(100 * kSecondUs), "0+4");
  Load(9, 0);
  EXPECT_EQ(FollowAfter(100 * kSecondUs), "0+2");
}

TEST_F(FormationPolicyTest, AHighPriorityWithoutAGainGetsNoGroup) {
  Load(5, 0);
  load_.sizes = {{1, 1000}, {2, 2000, 1.0}, {4, 4000, 2.0}};
  load_.highest_priority = 5;
  EXPECT_EQ(Follow(), "");
  EXPECT_EQ(Choose().rejected.back().why, "a request of priority -5 waits, but it would not gain");
}

TEST_F(FormationPolicyTest, LengthAndPriorityGetTwoGroups) {
  load_.members.resize(8);
  Load(5, 0);
  load_.sizes = {{1, 1000}, {2, 2000, 1.5}, {4, 4000, 1.4}, {8, 8000, 1.3}};
  load_.longest_tokens = 3000;
  load_.highest_priority = 5;
  EXPECT_EQ(Follow(), "0+4 4+2");
  EXPECT_EQ(Choose().why,
            "a request of 3000 tokens fits bound(4) (4000 tokens), but nothing smaller; a request "
            "of priority -5 gets a bound group");
  load_.longest_tokens = 8000;
  EXPECT_EQ(Follow(), "0+8");
  EXPECT_EQ(Choose().rejected.back().why,
            "a request of priority -5 waits, but no members are free");
}

TEST_F(FormationPolicyTest, ALongRequestWhenQuietGetsASizeThatLoadWouldNotChoose) {
  load_.sizes = {{1, 1000}, {2, 2000, 1.5}, {4, 4000, 1.4}};
  EXPECT_EQ(Follow(), "0+2 2+2");
  load_.longest_tokens = 2000;
  EXPECT_EQ(FollowAfter(100 * kSecondUs), "0+2 2+2");
  load_.longest_tokens = 2001;
  EXPECT_EQ(FollowAfter(1), "0+4");
  load_.longest_tokens = 0;
  EXPECT_EQ(FollowAfter(kSecondUs), "0+4");
  EXPECT_EQ(FollowAfter(100 * kSecondUs), "0+2 2+2");
}

// Whatever the load: aligned, disjoint, with a reason, the same again, and steady once followed.
TEST_F(FormationPolicyTest, AnyChoiceCanBeCarriedOut) {
  uint64_t state = 1;
  const auto random = [&](uint64_t below) {
    return static_cast<int64_t>(Mix64(state += kMix64Step) % below);
  };
  for (int i = 0; i < 20'000; ++i) {
    load_ = {.waiting_requests = random(20),
             .waiting_tokens = random(20'000),
             .longest_tokens = random(3) * random(9000)};
    config_.release_waiting_tokens = static_cast<double>(random(3) * 1000);
    load_.members.resize(static_cast<size_t>(random(10)));
    for (GroupLoad::Member& member : load_.members) {
      member = {.running_sequences = random(5), .running_tokens = random(100)};
    }
    for (const int32_t size : {1, 2, 4, 8}) {
      load_.sizes.push_back({size, 1000 * size});
      if (random(3) != 0) load_.sizes.back().gain = 0.8 + static_cast<double>(random(10)) / 10;
    }
    if (random(2) != 0) load_.highest_priority = static_cast<int32_t>(random(10));
    if (random(2) != 0) load_.urgent_us = now_ - random(20) * kSecondUs;
    while (random(3) == 0) {
      load_.pinned.push_back({static_cast<int32_t>(random(9)), static_cast<int32_t>(random(9))});
    }
    load_.since_us = now_ - random(20) * kSecondUs;
    // What runs a long request stays bound, unless a pin takes one of its members.
    for (int32_t first = 0; first + 2 <= static_cast<int32_t>(load_.members.size()); first += 2) {
      if (random(4) == 0) load_.bound.push_back({{first, 2}, BindReason::kLoad, 1 + random(3)});
    }
    for (int32_t first = 0; first < 8; first += 2) {
      if (random(4) == 0) load_.blocked[{first, 2}] = "stray";
    }
    const FormationChoice kept = Choose();
    for (const FormationChoice::Bound& bound : kept.bound) {
      const bool present =
          std::any_of(load_.bound.begin(), load_.bound.end(),
                      [&](const GroupLoad::Present& one) { return one.subset == bound.subset; });
      EXPECT_TRUE(bound.reason == BindReason::kPin || present ||
                  !load_.blocked.contains(bound.subset));
    }
    for (const GroupLoad::Present& present : load_.bound) {
      const bool pinned =
          std::any_of(load_.pinned.begin(), load_.pinned.end(),
                      [&](const Subset& pin) { return pin.Overlaps(present.subset); });
      EXPECT_TRUE(pinned || Chooses(kept, present.subset));
    }
    load_.bound.clear();
    Follow();
    const FormationChoice choice = Choose();
    EXPECT_EQ(Text(choice), Text(Choose()));
    EXPECT_FALSE(choice.why.empty());
    int32_t end = 0;
    for (const FormationChoice::Bound& bound : choice.bound) {
      EXPECT_TRUE(IsBindable(bound.subset, load_.members.size()));
      EXPECT_GE(bound.subset.first, end);
      end = bound.subset.end();
    }
    const int before = switches_;
    Follow();
    FollowAfter(100 * kSecondUs);
    FollowAfter(100 * kSecondUs);
    EXPECT_LE(switches_, before + 1);  // what was kept for the dwell
    if (HasFailure()) return;
  }
}

TEST_F(FormationPolicyTest, ChecksItsConfig) {
  EXPECT_TRUE(CheckFormationPolicy({}).ok());
  EXPECT_TRUE(CheckFormationPolicy(kConfig).ok());
  const auto message = [](const FormationPolicyConfig& config) {
    return std::string(CheckFormationPolicy(config).message());
  };
  EXPECT_EQ(message({.bind_sequences = -1}), "bind_sequences: -1 is below 0");
  EXPECT_EQ(message({.bind_sequences = 4, .release_sequences = 4}),
            "release_sequences: 4 is not above bind_sequences, 4");
  EXPECT_EQ(message({.release_waiting_tokens = -2}), "release_waiting_tokens: -2 is below 0");
  EXPECT_EQ(message({.min_dwell_us = -1}), "min_dwell_us: -1 is below 0");
  EXPECT_EQ(message({.min_gain = 0.9}), "min_gain: 0.9 is below 1: it would bind what loses by it");
  EXPECT_NE(message({.min_gain = std::numeric_limits<double>::quiet_NaN()}), "");
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
