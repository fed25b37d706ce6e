#include "scheduler/worker/decode/stream_gaps.h"

#include <gtest/gtest.h>

#include <optional>

namespace skein::scheduler {
namespace {

constexpr CallId kOne{1}, kTwo{2};

TEST(StreamGaps, TheFirstTokenAfterASwitchEndsTheGap) {
  StreamGaps gaps;
  EXPECT_EQ(gaps.Sent(kOne, 100), std::nullopt);
  EXPECT_EQ(gaps.Sent(kOne, 110), std::nullopt) << "no switch was between them";
  gaps.Bound(OwnSequences::kSoftPreempt);
  EXPECT_EQ(gaps.Sent(kOne, 135), (StreamGap{true, OwnSequences::kSoftPreempt, 25}));
  EXPECT_EQ(gaps.Sent(kOne, 145), std::nullopt) << "once a switch";
  gaps.Released();
  EXPECT_EQ(gaps.Sent(kOne, 149), (StreamGap{false, OwnSequences::kSoftPreempt, 4}));
  EXPECT_EQ(gaps.Sent(kOne, 150), std::nullopt);
}

TEST(StreamGaps, EachStreamHasItsOwn) {
  StreamGaps gaps;
  gaps.Sent(kOne, 100);
  gaps.Sent(kTwo, 104);
  gaps.Bound(OwnSequences::kShare);
  EXPECT_EQ(gaps.Sent(kTwo, 110), (StreamGap{true, OwnSequences::kShare, 6}));
  EXPECT_EQ(gaps.Sent(kOne, 111), (StreamGap{true, OwnSequences::kShare, 11}));
}

TEST(StreamGaps, AStreamWithoutATokenBeforeTheSwitchHasNone) {
  StreamGaps gaps;
  gaps.Bound(OwnSequences::kShare);
  EXPECT_EQ(gaps.Sent(kOne, 100), std::nullopt);
}

TEST(StreamGaps, AStreamThatEndsBeforeItsNextTokenHasNone) {
  StreamGaps gaps;
  gaps.Sent(kOne, 100);
  gaps.Bound(OwnSequences::kShare);
  gaps.Ended(kOne);
  gaps.Ended(kTwo);
  EXPECT_EQ(gaps.streams(), 0u);
  EXPECT_EQ(gaps.Sent(kOne, 130), std::nullopt) << "a stream of the same name is another one";
}

TEST(StreamGaps, AGapOverSeveralSwitchesIsOneOfTheFirst) {
  StreamGaps gaps;
  gaps.Sent(kOne, 100);
  gaps.Bound(OwnSequences::kHardPreempt);
  gaps.Released();
  gaps.Bound(OwnSequences::kShare);
  EXPECT_EQ(gaps.Sent(kOne, 900), (StreamGap{true, OwnSequences::kHardPreempt, 800}));
  EXPECT_EQ(gaps.Sent(kOne, 901), std::nullopt);
}

TEST(StreamGaps, AFormationWithoutAStepIsNoSwitch) {
  StreamGaps gaps;
  gaps.Sent(kOne, 100);
  gaps.Released();
  EXPECT_EQ(gaps.Sent(kOne, 150), std::nullopt);
}

}  // namespace
}  // namespace skein::scheduler
