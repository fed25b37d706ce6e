#include "scheduler/worker/decode/stream_moves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/worker/testing/core_testing.h"

namespace skein::scheduler {
namespace {

constexpr int64_t kBlockTokens = 4;
constexpr PoolRoom kAmple{10'000, 100'000, 100'000};

// A draining instance's streams. A call has the number of its request.
class Streams {
 public:
  Streams() { moves_.TakeRoom(kAmple); }

  DecodeSequence& Run(uint64_t serial, int64_t max_tokens = 100, int64_t prompt_tokens = 6) {
    DecodeSequence& sequence = sequences_.Add(testing::Spec(serial, prompt_tokens, max_tokens), {5},
                                              /*now=*/0, /*attach_until_us=*/1000);
    sequences_.Attach(sequence, {serial});
    sequences_.Run(sequence, "", std::nullopt);
    return sequence;
  }
  // Those that are asked for at a look now.
  std::vector<uint64_t> Look() {
    std::vector<uint64_t> asked;
    for (const AskToMove& ask : moves_.Take(&sequences_, now_)) {
      asked.push_back(ask.call.value);
      if (routers_move_) Leave(ask.call);
    }
    return asked;
  }
  // At all looks until then, with their times.
  std::vector<std::pair<TimeUs, uint64_t>> Until(TimeUs end) {
    std::vector<std::pair<TimeUs, uint64_t>> asked;
    while (moves_.NextDeadline() <= end) {
      now_ = std::max(now_, moves_.NextDeadline());
      const std::vector<uint64_t> calls = Look();
      std::transform(calls.begin(), calls.end(), std::back_inserter(asked),
                     [this](uint64_t call) { return std::pair(now_, call); });
      EXPECT_GT(moves_.NextDeadline(), now_);
    }
    now_ = end;
    return asked;
  }

  void Leave(CallId call) {
    DecodeSequence* sequence = sequences_.Detach(call);
    sequences_.End(*sequence, FinishReason::kCancelled, absl::CancelledError("it has moved"));
    sequences_.Erase(sequence->id());
  }

  bool routers_move_ = false;  // what is asked for
  TimeUs now_ = 0;
  DecodeSequences sequences_{[](const TokenEffect&) {}};
  StreamMoves moves_{kBlockTokens};
};

TEST(StreamMoves, NobodyIsAskedUnlessTheInstanceDrains) {
  Streams streams;
  streams.Run(1);
  EXPECT_TRUE(streams.Look().empty());
  EXPECT_EQ(streams.moves_.NextDeadline(), kNever);
  streams.moves_.Start(0, kNever);
  EXPECT_EQ(streams.Look(), std::vector<uint64_t>{1});
  streams.moves_.Stop();
  streams.Run(2);
  EXPECT_TRUE(streams.Until(kSecondUs).empty());
  EXPECT_EQ(streams.moves_.asked(), 1u);
}

TEST(StreamMoves, OneIsAskedAtATimeTheLongestFirst) {
  Streams streams;
  streams.Run(1, 50);
  streams.Run(2, 200);
  streams.Run(3, 100);
  streams.moves_.Start(0, kNever);
  const std::vector<std::pair<TimeUs, uint64_t>> expected = {
      {0, 2}, {StreamMoves::kPaceUs, 3}, {2 * StreamMoves::kPaceUs, 1}};
  EXPECT_EQ(streams.Until(kSecondUs), expected);
}

// However many there are: half of the grace is left then.
TEST(StreamMoves, AllHaveBeenAskedWhenHalfOfTheGraceHasPassed) {
  constexpr TimeUs kGraceUs = 20 * kSecondUs;
  for (const uint64_t count : {1, 7, 100, 500}) {
    Streams streams;
    streams.routers_move_ = true;
    for (uint64_t serial = 1; serial <= count; ++serial) streams.Run(serial);
    streams.moves_.Start(0, kGraceUs);
    const auto asked = streams.Until(kGraceUs / 2);
    std::set<uint64_t> calls;
    TimeUs before = -1;
    size_t together = 0;
    for (const auto& [at, call] : asked) {
      calls.insert(call);
      together += at == before ? 1 : 0;
      before = at;
    }
    EXPECT_EQ(calls.size(), count);
    EXPECT_LE(together, 1u) << "they are spread";
  }
}

TEST(StreamMoves, WhatEndsSoonIsAskedForOnlyWhenTheWindowEnds) {
  Streams streams;
  streams.Run(1, StreamMoves::kFewTokens);
  streams.moves_.Start(0, 4 * kSecondUs);
  EXPECT_TRUE(streams.Until(2 * kSecondUs - 1).empty());
  EXPECT_EQ(streams.Until(3 * kSecondUs).size(), 1u);
}

TEST(StreamMoves, WhatOthersHaveNoRoomForStays) {
  Streams streams;
  streams.routers_move_ = true;
  streams.Run(1, 200, /*prompt_tokens=*/100);  // 26 blocks
  streams.Run(2);                              // 2 blocks
  streams.Run(3);
  streams.moves_.TakeRoom({});
  streams.moves_.Start(0, 4 * kSecondUs);
  EXPECT_TRUE(streams.Until(kSecondUs).empty());
  streams.moves_.TakeRoom({.requests = 10, .blocks = 25, .sequence_blocks = 100});
  EXPECT_EQ(streams.Until(kSecondUs).at(0).second, 2u) << "as soon as there is news";
  streams.moves_.TakeRoom({.requests = 1, .blocks = 1000, .sequence_blocks = 26});
  EXPECT_EQ(streams.Until(4 * kSecondUs).at(0).second, 1u);
  EXPECT_EQ(streams.moves_.asked(), 2u) << "asks are counted off, also when the window has ended";
  streams.moves_.TakeRoom(kAmple);
  EXPECT_EQ(streams.Until(5 * kSecondUs).at(0).second, 3u);
}

// A report that was under way does not know of the move yet.
TEST(StreamMoves, RoomThatIsToldAnewIsStillTakenByStreamsThatHaveNotLeft) {
  Streams streams;
  streams.Run(1);
  streams.Run(2);
  const PoolRoom one{.requests = 1, .blocks = 100, .sequence_blocks = 100};
  streams.moves_.TakeRoom(one);
  streams.moves_.Start(0, kNever);
  EXPECT_EQ(streams.Until(kSecondUs).size(), 1u);
  streams.moves_.TakeRoom(one);
  EXPECT_TRUE(streams.Until(kSecondUs + StreamMoves::kPaceUs).empty());
  streams.Leave({1});
  streams.moves_.TakeRoom(one);
  EXPECT_EQ(streams.Until(kSecondUs + 2 * StreamMoves::kPaceUs).size(), 1u);
}

// Its router was cut off from its orchestrator, say.
TEST(StreamMoves, WhatWasNotMovedIsAskedForAgain) {
  Streams streams;
  streams.Run(1);
  streams.moves_.Start(0, kNever);
  const auto asked = streams.Until(3 * StreamMoves::kAgainUs);
  ASSERT_GE(asked.size(), 2u);
  EXPECT_GE(asked[1].first - asked[0].first, StreamMoves::kAgainUs);
  EXPECT_LE(asked[1].first - asked[0].first, StreamMoves::kAgainUs + StreamMoves::kPaceUs);
}

TEST(StreamMoves, OnlyStreamsThatRunHereAreAskedFor) {
  Streams streams;
  streams.sequences_.Add(testing::Spec(1, 6, 100), {5}, 0, 1000);  // its KV is on its way
  DecodeSequence& unattached = streams.sequences_.Add(testing::Spec(2, 6, 100), {5}, 0, 1000);
  streams.sequences_.Run(unattached, "", std::nullopt);
  DecodeSequence& bound = streams.Run(3);
  streams.sequences_.Preempt(bound);
  streams.sequences_.Bind(bound);
  streams.sequences_.End(streams.Run(4), FinishReason::kStop, absl::OkStatus());
  streams.moves_.Start(0, kSecondUs);
  EXPECT_TRUE(streams.Until(2 * kSecondUs).empty());
  streams.sequences_.Unbind(bound);
  streams.sequences_.Attach(unattached, {2});
  std::set<uint64_t> asked;
  for (const auto& [at, call] : streams.Until(3 * kSecondUs)) asked.insert(call);
  EXPECT_EQ(asked, (std::set<uint64_t>{2, 3}));
}

// A stop signal while an operator's order holds: from then on there is an end.
TEST(StreamMoves, ADrainThatGetsAnEndHurries) {
  constexpr uint64_t kCount = 100;
  Streams streams;
  streams.routers_move_ = true;
  for (uint64_t serial = 1; serial <= kCount; ++serial) streams.Run(serial);
  streams.moves_.Start(0, kNever);
  EXPECT_EQ(streams.Until(kSecondUs).size(), 11u);
  streams.moves_.Start(kSecondUs, kNever);  // told again
  EXPECT_EQ(streams.Until(kSecondUs).size(), 0u);
  streams.moves_.Start(kSecondUs, 3 * kSecondUs);
  EXPECT_EQ(streams.Until(2 * kSecondUs).size(), kCount - 11);
}

}  // namespace
}  // namespace skein::scheduler
