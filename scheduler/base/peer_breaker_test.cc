#include "scheduler/base/peer_breaker.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace skein::scheduler {
namespace {

using State = PeerBreaker::State;

TEST(PeerBreaker, OpensAfterSoManyFailuresInARow) {
  PeerBreaker breaker(2, 50, 400);
  EXPECT_EQ(breaker.StateAt(0), State::kClosed);
  breaker.Failed(100);
  EXPECT_EQ(breaker.StateAt(100), State::kClosed);
  EXPECT_TRUE(breaker.Allows(100));
  EXPECT_EQ(breaker.next_us(), 150);
  breaker.Succeeded();
  EXPECT_EQ(breaker.next_us(), 0);
  breaker.Failed(200);
  EXPECT_EQ(breaker.StateAt(200), State::kClosed) << "they are not in a row";
  breaker.Failed(300);
  EXPECT_EQ(breaker.StateAt(300), State::kOpen);
  EXPECT_FALSE(breaker.Allows(399));
  EXPECT_EQ(breaker.next_us(), 400);
}

TEST(PeerBreaker, MakesOneTryAfterEachPauseAndPausesLongerWhenItFails) {
  PeerBreaker breaker(2, 50, 400);
  breaker.Failed(0);
  breaker.Failed(0);
  for (const TimeUs pause : {100, 200, 400, 400, 400}) {
    const TimeUs end = breaker.next_us();
    EXPECT_FALSE(breaker.Allows(end - 1));
    EXPECT_EQ(breaker.StateAt(end), State::kHalfOpen);
    EXPECT_TRUE(breaker.Allows(end));
    EXPECT_FALSE(breaker.Allows(end)) << "one is under way";
    EXPECT_FALSE(breaker.Allows(end + 1000)) << "and takes its time";
    breaker.Failed(end);
    EXPECT_EQ(breaker.next_us() - end, std::min<TimeUs>(2 * pause, 400));
  }
  EXPECT_TRUE(breaker.Allows(breaker.next_us()));
  breaker.Succeeded();
  EXPECT_EQ(breaker.StateAt(breaker.next_us()), State::kClosed);
  EXPECT_TRUE(breaker.Allows(0));
  EXPECT_TRUE(breaker.Allows(0));
}

}  // namespace
}  // namespace skein::scheduler
