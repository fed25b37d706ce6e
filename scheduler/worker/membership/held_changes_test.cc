#include "scheduler/worker/membership/held_changes.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

constexpr RequestId kA{7, 1}, kB{7, 2};

HeldRequest Held(RequestId id, uint32_t chunks_done = 0) {
  return {.id = id, .epoch = {5}, .chunks_done = chunks_done};
}

TEST(HeldChangesTest, AChangeIsToldOnceInItsLatestState) {
  HeldChanges changes;
  changes.Holds(Held(kA), kNever);
  changes.Holds(Held(kB), kNever);
  EXPECT_EQ(changes.TakeChanges(100).size(), 2u);
  EXPECT_TRUE(changes.TakeChanges(100).empty());
  changes.Holds(Held(kA, 1), kNever);
  changes.Holds(Held(kA, 2), /*chunk_since_us=*/70);
  const auto told = changes.TakeChanges(100);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].chunks_done, 2u);
  EXPECT_EQ(told[0].chunk_running_us, 30);
  EXPECT_TRUE(changes.CheckInvariants({Held(kA), Held(kB)}).ok());
  EXPECT_FALSE(changes.CheckInvariants({Held(kA)}).ok());
}

TEST(HeldChangesTest, WhatIsDroppedIsNeitherHeldNorChanged) {
  HeldChanges changes;
  changes.Holds(Held(kA), kNever);
  changes.Holds(Held(kB), kNever);
  EXPECT_TRUE(changes.Drop(kA, {5}));
  EXPECT_FALSE(changes.Drop(kA, {5}));
  changes.Gone(kB, {4});  // another epoch
  changes.Gone(kB, {5});
  EXPECT_TRUE(changes.TakeChanges(0).empty());
  const auto gone = changes.TakeGone();
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone[0].id, kB);
  EXPECT_EQ(changes.digest(), DigestOf({}));
  EXPECT_TRUE(changes.CheckInvariants({}).ok());
}

TEST(HeldChangesTest, AFullListTellsEverything) {
  HeldChanges changes;
  changes.Holds(Held(kA), kNever);
  changes.Holds(Held(kB), kNever);
  changes.Gone(kB, {5});
  changes.ListTold();
  EXPECT_TRUE(changes.TakeChanges(0).empty());
  changes.AllTold();
  EXPECT_TRUE(changes.TakeGone().empty());
  EXPECT_EQ(changes.digest(), DigestOf({Held(kA)}));
}

}  // namespace
}  // namespace skein::scheduler
