#include "scheduler/router/heard_instances.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

using Ids = std::vector<Incarnation>;
constexpr TimeUs kSilence = kSecondUs;  // a third of the lease of 3 s

class HeardInstancesTest : public ::testing::Test {
 protected:
  void TearDown() override { Check(); }
  void Check() {
    const absl::Status invariants = heard_.CheckInvariants();
    ASSERT_TRUE(invariants.ok()) << invariants;
  }
  // As the shell's loop: a tick when it is due, all messages before it handled.
  void Wait(TimeUs how_long) {
    const TimeUs until = now_ + how_long;
    while (heard_.NextDeadline() <= until) {
      now_ = std::max(now_, heard_.NextDeadline());
      heard_.Tick(now_);
      Check();
    }
    now_ = until;
  }

  TimeUs now_ = 5 * kSecondUs;
  HeardInstances heard_;
};

TEST_F(HeardInstancesTest, OnlyChangesAreToldAfterTheWhole) {
  heard_.Attach({0, {1}}, "a");
  heard_.Attach({0, {2}}, "b");
  heard_.Received("a", now_);
  HeardInstances::Told told = heard_.TellAll(0);
  EXPECT_EQ(told.heard, (Ids{{1}}));
  EXPECT_EQ(told.not_heard, (Ids{{2}}));
  heard_.Received("a", now_);
  told = heard_.TellChanges(0);
  EXPECT_TRUE(told.heard.empty() && told.not_heard.empty());
  heard_.Received("b", now_);
  heard_.Broken("a");
  told = heard_.TellChanges(0);
  EXPECT_EQ(told.heard, (Ids{{2}}));
  EXPECT_EQ(told.not_heard, (Ids{{1}}));
  EXPECT_EQ(heard_.TellAll(0).heard, (Ids{{2}})) << "the whole again, on another stream";
}

TEST_F(HeardInstancesTest, EachCellIsToldOfItsOwnInstances) {
  heard_.Attach({0, {1}}, "a");
  heard_.Attach({1, {1}}, "b");
  heard_.Received("b", now_);
  EXPECT_TRUE(heard_.TellChanges(0).heard.empty());
  EXPECT_EQ(heard_.TellChanges(1).heard, (Ids{{1}}));
  EXPECT_EQ(heard_.TellAll(0).not_heard, (Ids{{1}}));
}

TEST_F(HeardInstancesTest, AnInstanceWithoutRequestsIsNotHeard) {
  heard_.Received("a", now_);
  heard_.Attach({0, {1}}, "a");
  EXPECT_TRUE(heard_.TellChanges(0).heard.empty()) << "that came before its requests";
  heard_.Attach({0, {1}}, "a");
  heard_.Received("a", now_);
  EXPECT_EQ(heard_.TellChanges(0).heard.size(), 1u);
  heard_.Detach({0, {1}});
  EXPECT_TRUE(heard_.TellChanges(0).not_heard.empty());
  heard_.Detach({0, {1}});
  EXPECT_EQ(heard_.TellChanges(0).not_heard, (Ids{{1}}));
  EXPECT_EQ(heard_.NextDeadline(), kNever);
  heard_.Detach({0, {1}});  // unknown: fine
}

TEST_F(HeardInstancesTest, WhatChangesAndChangesBackIsNotTold) {
  heard_.Attach({0, {1}}, "a");
  heard_.Received("a", now_);
  heard_.TellChanges(0);
  heard_.Broken("a");
  heard_.Received("a", now_);
  const HeardInstances::Told told = heard_.TellChanges(0);
  EXPECT_TRUE(told.heard.empty() && told.not_heard.empty());
}

TEST_F(HeardInstancesTest, SilenceEndsItAndMessagesProlongIt) {
  heard_.Attach({0, {1}}, "a");
  heard_.Received("a", now_);
  heard_.TellChanges(0);
  for (int i = 0; i < 10; ++i) {
    Wait(kSilence / 2);
    heard_.Received("a", now_);
  }
  EXPECT_TRUE(heard_.TellChanges(0).not_heard.empty());
  Wait(kSilence * 3 / 4);
  EXPECT_TRUE(heard_.TellChanges(0).not_heard.empty());
  Wait(kSilence / 2);
  EXPECT_EQ(heard_.TellChanges(0).not_heard, (Ids{{1}}));
  heard_.Received("a", now_);
  EXPECT_EQ(heard_.TellChanges(0).heard, (Ids{{1}}));
}

// A third of the lease that the instance's orchestrator told, whatever that is.
TEST_F(HeardInstancesTest, TheOrchestratorsLeaseSetsTheSilence) {
  for (const TimeUs lease_us : {60 * kSecondUs, 300 * kMillisecondUs}) {
    heard_.SetLease(1, lease_us);
    heard_.Attach({0, {1}}, "a");
    heard_.Attach({1, {1}}, "b");
    heard_.Received("a", now_);
    heard_.Received("b", now_);
    heard_.TellChanges(0);
    heard_.TellChanges(1);
    const TimeUs since_us = now_;
    const auto ends_after = [&](size_t cell) {
      while (heard_.TellChanges(cell).not_heard.empty()) Wait(kMillisecondUs);
      return now_ - since_us;
    };
    const bool longer = lease_us > 3 * kSecondUs;  // the other cell's, by default
    TimeUs silent_us[2] = {};
    for (const size_t cell : longer ? std::vector<size_t>{0, 1} : std::vector<size_t>{1, 0}) {
      silent_us[cell] = ends_after(cell);
    }
    EXPECT_NEAR(silent_us[0], kSilence, kSilence / 8);
    EXPECT_NEAR(silent_us[1], lease_us / 3, lease_us / 24);
    heard_.Detach({0, {1}});
    heard_.Detach({1, {1}});
  }
}

// Messages that wait here, unread, are not the instance's silence.
TEST_F(HeardInstancesTest, AStandstillOfTheRouterIsNoSilence) {
  heard_.Attach({0, {1}}, "a");
  heard_.Received("a", now_);
  heard_.TellChanges(0);
  for (int i = 0; i < 5; ++i) {
    now_ += 10 * kSilence;
    heard_.Tick(now_);
    heard_.Received("a", now_);
    EXPECT_TRUE(heard_.TellChanges(0).not_heard.empty());
  }
}

}  // namespace
}  // namespace skein::scheduler
