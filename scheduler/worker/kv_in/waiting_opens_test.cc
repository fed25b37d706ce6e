#include "scheduler/worker/kv_in/waiting_opens.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace skein::scheduler {
namespace {

OpenTransferCalled Call(uint64_t serial, uint64_t call) {
  return {{call}, {.id = {7, serial}, .epoch = {5}}};
}

TEST(WaitingOpens, CallsWaitForTheirOwnRequestInTheOrderOfTheirComing) {
  WaitingOpens waiting;
  waiting.Hold(Call(1, 10), 50);
  waiting.Hold(Call(2, 11), 40);
  waiting.Hold(Call(1, 12), 60);
  EXPECT_TRUE(waiting.CheckInvariants().ok()) << waiting.CheckInvariants();
  EXPECT_EQ(waiting.NextDeadline(), 40);
  EXPECT_TRUE(waiting.TakeHeld({7, 3}).empty());
  const auto held = waiting.TakeHeld({7, 1});
  ASSERT_EQ(held.size(), 2u);
  EXPECT_EQ(held[0].first.call, CallId{10});
  EXPECT_EQ(held[0].second, 50);
  EXPECT_EQ(held[1].first.call, CallId{12});
  EXPECT_FALSE(waiting.TakeOverdue(39).has_value());
  EXPECT_EQ(waiting.TakeOverdue(40)->call, CallId{11});
  EXPECT_TRUE(waiting.TakeHeld({7, 2}).empty());
  EXPECT_EQ(waiting.NextDeadline(), kNever);
}

}  // namespace
}  // namespace skein::scheduler
