#include "scheduler/worker/kv_in/staging_loans.h"

#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

namespace skein::scheduler {
namespace {

class StagingLoansTest : public testing::Test {
 protected:
  ~StagingLoansTest() override {
    EXPECT_TRUE(loans_.CheckInvariants().ok()) << loans_.CheckInvariants();
  }

  // What was answered and asked since the last call, as text.
  std::string Take() {
    std::string text;
    for (const KvInEffect& effect : std::exchange(effects_, {})) {
      if (!text.empty()) text += "; ";
      if (const auto* answer = std::get_if<AnswerAcquireStagingBuffer>(&effect)) {
        text += "call " + std::to_string(answer->call.value) + ": ";
        text += answer->reply.status.ok()
                    ? answer->reply.memory + " under " + std::to_string(answer->grant.value)
                    : std::string(answer->reply.status.message());
      } else {
        text += "close " + std::to_string(std::get<CloseGrant>(effect).grant.value);
      }
    }
    return text;
  }

  const StagingLoans::Writer a_{{7, 1}, {5}, {1}}, b_{{7, 2}, {6}, {2}};
  std::vector<KvInEffect> effects_;
  uint64_t grants_ = 0;
  StagingLoans loans_{{.memory = {"m"}, .slots = 4, .acquire_wait_us = 50, .hold_us = 1'000},
                      100,
                      [this] { return GrantId{++grants_}; },
                      [this](KvInEffect effect) { effects_.push_back(std::move(effect)); }};
};

TEST_F(StagingLoansTest, ABufferChangesHandsWhenTheFormerGrantWasClosed) {
  loans_.Acquire(a_, {10}, 1, 0);
  EXPECT_EQ(Take(), "call 10: m under 1");
  EXPECT_EQ(loans_.BufferOf(a_), 0);
  loans_.Acquire(b_, {11}, 1, 5);
  EXPECT_EQ(Take(), "");
  loans_.Finish(a_, 6);
  loans_.End(a_.id, a_.epoch, 6);
  EXPECT_EQ(Take(), "close 1") << "a late put of the former writer could reach it";
  EXPECT_FALSE(loans_.GrantClosed({2}));
  EXPECT_TRUE(loans_.GrantClosed({1}));
  EXPECT_EQ(Take(), "call 11: m under 2");
}

TEST_F(StagingLoansTest, ACallThatWaitsTooLongIsAnswered) {
  loans_.Acquire(a_, {10}, 1, 0);
  loans_.Acquire(b_, {11}, 1, 0);
  Take();
  EXPECT_EQ(loans_.NextDeadline(), 50);
  loans_.Renew(a_, 49);
  loans_.RunTimers(50);
  EXPECT_EQ(Take(), "call 11: no staging buffer yet");
}

TEST_F(StagingLoansTest, OfAWritersCallsTheNewestWaits) {
  loans_.Acquire(a_, {10}, 1, 0);
  loans_.Acquire(b_, {11}, 1, 0);
  Take();
  loans_.Acquire(b_, {12}, 2, 1);
  EXPECT_EQ(Take(), "call 11: a later call of this writer replaces this one");
  loans_.Refuse(b_, absl::FailedPreconditionError("the request has ended"));
  EXPECT_EQ(Take(), "call 12: the request has ended");
  loans_.Refuse(b_, absl::FailedPreconditionError("the request has ended"));
  EXPECT_EQ(Take(), "");
}

TEST_F(StagingLoansTest, ASilentWriterLosesItsBuffer) {
  loans_.Acquire(a_, {10}, 1, 0);
  loans_.Acquire(b_, {11}, 1, 60);
  Take();
  loans_.RunTimers(100);
  EXPECT_FALSE(loans_.BufferOf(a_).has_value());
}

}  // namespace
}  // namespace skein::scheduler
