#include "scheduler/worker/prefill/decode_place_calls.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

constexpr TimeUs kRetryUs = 50;
constexpr TimeUs kGiveUpUs = 1000;
const absl::Status kNoRoom = absl::ResourceExhaustedError("no room");

RequestId Id(uint64_t serial) { return {7, serial}; }

class DecodePlaceCallsTest : public ::testing::Test {
 protected:
  void Ask(uint64_t serial, uint64_t epoch = 5) {
    calls_.Ask({.id = Id(serial), .epoch = {epoch}}, now_);
    Check();
  }
  void Connect(bool connected) {
    calls_.SetConnected(connected, now_);
    Check();
  }
  bool Answered(uint64_t serial, const absl::Status& status, uint64_t epoch = 5) {
    const bool known = calls_.Answered(Id(serial), {epoch}, status, now_);
    Check();
    return known;
  }
  std::vector<RequestId> RunTimers() {
    std::vector<RequestId> given_up = calls_.RunTimers(now_);
    Check();
    return given_up;
  }
  void Check() { EXPECT_TRUE(calls_.CheckInvariants().ok()) << calls_.CheckInvariants(); }
  // The requests that have called since the last look.
  std::vector<uint64_t> Called() { return std::exchange(called_, {}); }

  TimeUs now_ = 0;
  std::vector<uint64_t> called_;
  DecodePlaceCalls calls_{
      {.retry_us = kRetryUs, .give_up_us = kGiveUpUs},
      [this](const PlaceDecodeRequest& request) { called_.push_back(request.id.serial); }};
};

using Serials = std::vector<uint64_t>;

TEST_F(DecodePlaceCallsTest, ACallIsAnsweredOnce) {
  Connect(true);
  Ask(1);
  EXPECT_EQ(Called(), Serials{1});
  EXPECT_FALSE(Answered(1, absl::OkStatus(), /*epoch=*/4)) << "an older epoch's";
  EXPECT_TRUE(Answered(1, absl::OkStatus()));
  EXPECT_FALSE(Answered(1, absl::OkStatus()));
}

TEST_F(DecodePlaceCallsTest, WithoutRoomItCallsAgainAfterAWhile) {
  Connect(true);
  Ask(1);
  Called();
  EXPECT_TRUE(Answered(1, kNoRoom));
  EXPECT_FALSE(Answered(1, absl::OkStatus())) << "its call is not on the stream";
  EXPECT_EQ(calls_.NextDeadline(), kRetryUs);
  now_ = kRetryUs;
  EXPECT_TRUE(RunTimers().empty());
  EXPECT_EQ(Called(), Serials{1});
  EXPECT_EQ(calls_.NextDeadline(), kNever);
}

TEST_F(DecodePlaceCallsTest, WithoutAStreamItWaitsAndGivesUp) {
  Ask(1);
  now_ = 10;
  Ask(2);
  EXPECT_TRUE(Called().empty());
  now_ = kGiveUpUs;
  EXPECT_EQ(RunTimers(), std::vector<RequestId>{Id(1)});
  Connect(true);
  EXPECT_EQ(Called(), Serials{2});
  EXPECT_EQ(calls_.NextDeadline(), kNever);
}

TEST_F(DecodePlaceCallsTest, ABrokenStreamTakesItsCallsAndTheNextGetsThem) {
  Connect(true);
  for (const uint64_t serial : {1, 2, 3}) Ask(serial);
  Answered(2, kNoRoom);
  calls_.Suspend(Id(3));
  Called();
  Connect(false);
  EXPECT_FALSE(Answered(1, absl::OkStatus())) << "of the stream that is gone";
  now_ = kRetryUs;
  EXPECT_TRUE(RunTimers().empty());  // the second finds no stream
  Connect(true);
  EXPECT_EQ(Called(), (Serials{1, 2}));
}

TEST_F(DecodePlaceCallsTest, ASuspendedCallIsNotMadeTwice) {
  Connect(true);
  Ask(1);
  Called();
  calls_.Suspend(Id(1));
  Ask(1);
  EXPECT_TRUE(Called().empty());
  calls_.Suspend(Id(1));
  EXPECT_TRUE(Answered(1, kNoRoom)) << "the answer is its";
  EXPECT_EQ(calls_.NextDeadline(), kNever) << "but it does not ask";
  Ask(1);
  EXPECT_EQ(Called(), Serials{1});
}

TEST_F(DecodePlaceCallsTest, WhoIsForgottenAsksNoMore) {
  Connect(true);
  Ask(1);
  Ask(2);
  Answered(2, kNoRoom);
  calls_.Suspend(Id(2));  // it would call again: that is over
  EXPECT_EQ(calls_.NextDeadline(), kNever);
  calls_.Forget(Id(1));
  EXPECT_FALSE(Answered(1, absl::OkStatus()));
  Called();
  Connect(false);
  Connect(true);
  EXPECT_TRUE(Called().empty());
}

}  // namespace
}  // namespace skein::scheduler
