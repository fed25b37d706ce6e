#include "scheduler/worker/decode/expected_streams.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

TEST(ExpectedStreamsTest, AnEpochHasOneRouter) {
  ExpectedStreams streams;
  EXPECT_TRUE(streams.Add({7, 1}, {5}, {100}));
  EXPECT_FALSE(streams.Add({7, 1}, {5}, {101}));
  EXPECT_EQ(streams.Take({7, 1}, {5}), CallId{100});
  EXPECT_EQ(streams.Take({7, 1}, {5}), std::nullopt);
  EXPECT_TRUE(streams.CheckInvariants().ok());
}

TEST(ExpectedStreamsTest, AnEndTakesItsEpochAndOlderOnesOfThatRequestAlone) {
  ExpectedStreams streams;
  streams.Add({7, 1}, {4}, {100});
  streams.Add({7, 1}, {5}, {101});
  streams.Add({7, 1}, {6}, {102});
  streams.Add({7, 2}, {5}, {103});
  const auto taken = streams.TakeUpTo({7, 1}, {5});
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].call, CallId{100});
  EXPECT_EQ(taken[1].epoch, Epoch{5});
  EXPECT_EQ(streams.size(), 2u);
  EXPECT_TRUE(streams.CheckInvariants().ok());
}

TEST(ExpectedStreamsTest, ARouterThatDetachesLeavesNothing) {
  ExpectedStreams streams;
  streams.Add({7, 1}, {5}, {100});
  streams.Remove({99});
  streams.Remove({100});
  EXPECT_EQ(streams.size(), 0u);
  EXPECT_TRUE(streams.CheckInvariants().ok());
}

}  // namespace
}  // namespace skein::scheduler
