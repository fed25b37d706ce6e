#include "scheduler/orchestrator/registry/latest_streams.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

TEST(LatestStreamsTest, AStreamIsAboveTheLastOneOfItsProcess) {
  LatestStreams streams;
  EXPECT_TRUE(streams.Take({"w:1", 5}, 2).ok())
      << "the first one was taken by another orchestrator";
  const absl::Status late = streams.Take({"w:1", 5}, 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(late));
  EXPECT_EQ(late.message(), "stream: 1 is not above 2, the last one that this process has opened");
  EXPECT_FALSE(streams.Take({"w:1", 5}, 2).ok());
  EXPECT_TRUE(streams.Take({"w:1", 5}, 3).ok());
}

TEST(LatestStreamsTest, EachProcessHasItsOwnNumbers) {
  LatestStreams streams;
  EXPECT_TRUE(streams.Take({"w:1", 5}, 9).ok());
  EXPECT_TRUE(streams.Take({"w:2", 5}, 1).ok());
  EXPECT_TRUE(streams.Take({"w:1", 6}, 1).ok()) << "it was started again";
}

TEST(LatestStreamsTest, TheOldestIsForgotten) {
  LatestStreams streams;
  for (uint64_t i = 1; i <= LatestStreams::kMax; ++i) ASSERT_TRUE(streams.Take({"w", i}, 5).ok());
  ASSERT_TRUE(streams.Take({"w", 1}, 6).ok()) << "the latest now";
  ASSERT_TRUE(streams.Take({"x", 1}, 1).ok());
  EXPECT_TRUE(streams.CheckInvariants().ok()) << streams.CheckInvariants();
  EXPECT_FALSE(streams.Take({"w", 1}, 5).ok());
  EXPECT_FALSE(streams.Take({"w", 3}, 5).ok());
  EXPECT_TRUE(streams.Take({"w", 2}, 5).ok());
}

}  // namespace
}  // namespace skein::scheduler
