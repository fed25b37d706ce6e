// A router's standing with its orchestrator: when it opens the stream, whom it refuses, which ends
// it repeats, how it leaves.
#include "scheduler/router/orchestrator_session.h"

#include <gtest/gtest.h>

#include <utility>

namespace skein::scheduler {
namespace {

constexpr TimeUs kRetryUs = 800;
constexpr TimeUs kAnswerUs = 5000;
constexpr TimeUs kLeaseUs = 3000;
constexpr Generation kFirst{3, {1}};

class OrchestratorSessionTest : public ::testing::Test {
 protected:
  OrchestratorSessionTest() { session_.Join({.router = 7, .endpoint = "r:1"}, now_); }
  void TearDown() override { Check(); }

  void Check() { EXPECT_TRUE(session_.CheckInvariants().ok()) << session_.CheckInvariants(); }
  // What is due now; it must be one of these.
  template <class Effect>
  Effect Take() {
    const auto due = session_.Due(
        now_, [] { return RouterLoad{.queued = 4}; },
        [] {
          return std::vector<RouterRequest>{{.id = {7, 1}}};
        });
    Check();
    if (!due.has_value() || !std::holds_alternative<Effect>(*due)) {
      ADD_FAILURE() << "something else is due, or nothing";
      return {};
    }
    return std::get<Effect>(*due);
  }
  bool NothingIsDue() {
    return !session_
                .Due(
                    now_, [] { return RouterLoad{}; }, [] { return std::vector<RouterRequest>{}; })
                .has_value();
  }
  bool Welcome(Generation generation = kFirst) {
    const bool taken = session_.OnWelcomed(
        {.status = absl::OkStatus(), .generation = generation, .lease_us = kLeaseUs}, now_);
    Check();
    return taken;
  }
  void Connect() {
    Take<OpenLink>();
    ASSERT_TRUE(Welcome());
  }
  void Break() {
    session_.OnBroken(absl::UnavailableError("connection lost"), now_);
    Check();
  }
  // How long it waits until it opens the stream.
  TimeUs Pause() {
    const TimeUs since = now_;
    EXPECT_TRUE(NothingIsDue());
    now_ = session_.NextDeadline() - 1;
    EXPECT_TRUE(NothingIsDue());
    ++now_;
    Take<OpenLink>();
    return now_ - since;
  }
  // The report that is due at the latest, and its answer.
  void Report() {
    now_ = session_.NextDeadline();
    Take<SendRouterReport>();
    session_.OnReportTaken(now_);
    Check();
  }
  bool End(uint64_t serial) {
    const bool send = session_.Ended({.id = {7, serial}});
    Check();
    return send;
  }
  // Those that the hello of a new stream repeats.
  std::vector<uint64_t> EndsOfTheNextHello() {
    Break();
    now_ = session_.NextDeadline();
    std::vector<uint64_t> ends;
    for (const RouterEnd& end : Take<OpenLink>().hello.ended) ends.push_back(end.id.serial);
    return ends;
  }

  TimeUs now_ = 100;
  OrchestratorSession session_{{.report_us = 10'000,
                                .report_spacing_us = 50,
                                .answer_timeout_us = kAnswerUs,
                                .retry_us = kRetryUs}};
};

TEST_F(OrchestratorSessionTest, OpensTheStreamAtOnceWithItsWholeState) {
  EXPECT_FALSE(End(9)) << "there is no stream to send it on";
  const RouterHello hello = Take<OpenLink>().hello;
  EXPECT_EQ(hello.identity.router, 7u);
  EXPECT_EQ(hello.load.queued, 4);
  EXPECT_EQ(hello.requests.size(), 1u);
  ASSERT_EQ(hello.ended.size(), 1u);
  EXPECT_EQ(hello.ended[0].id.serial, 9u);
  EXPECT_FALSE(session_.ready());
  EXPECT_TRUE(Welcome());
  EXPECT_TRUE(session_.ready());
  EXPECT_EQ(session_.generation(), kFirst);
  EXPECT_FALSE(Welcome()) << "none is due";
}

TEST_F(OrchestratorSessionTest, TriesAgainAfterPausesThatDouble) {
  Connect();
  Break();
  EXPECT_EQ(Pause(), kRetryUs / 8) << "after a stream that stood";
  for (const TimeUs pause : {kRetryUs / 4, kRetryUs / 2, kRetryUs, kRetryUs}) {
    Break();
    EXPECT_EQ(Pause(), pause);
  }
  ASSERT_TRUE(Welcome());
  Break();
  EXPECT_EQ(Pause(), kRetryUs / 8);
}

// The orchestrator may get a hello after the next one.
TEST_F(OrchestratorSessionTest, EachHelloHasAHigherNumber) {
  for (const uint64_t stream : {1, 2, 3}) {
    EXPECT_EQ(Take<OpenLink>().hello.stream, stream);
    Break();
    now_ = session_.NextDeadline();
  }
}

TEST_F(OrchestratorSessionTest, ASilentOrchestratorIsABreak) {
  Take<OpenLink>();
  EXPECT_EQ(session_.NextDeadline(), now_ + kAnswerUs);
  now_ += kAnswerUs;
  Take<CloseLink>();
  EXPECT_EQ(session_.broken(), absl::DeadlineExceededError("the orchestrator does not answer"));
  now_ = session_.NextDeadline();
  Connect();
  now_ = session_.NextDeadline();
  Take<SendRouterReport>();
  now_ += kAnswerUs;
  Take<CloseLink>();
  EXPECT_FALSE(session_.ready());
}

// Only this side believes in the stream. It has to open another one before its lease expires.
TEST_F(OrchestratorSessionTest, AHalfOpenStreamIsClosedWithinTheLease) {
  Connect();
  const TimeUs heard_us = now_;
  now_ = session_.NextDeadline();
  const TimeUs reported_us = now_;
  Take<SendRouterReport>();
  now_ = session_.NextDeadline();
  Take<CloseLink>();
  EXPECT_EQ(now_, reported_us + kLeaseUs / 3) << "another one may lead by then";
  now_ = session_.NextDeadline();
  Take<OpenLink>();
  EXPECT_LT(now_, heard_us + kLeaseUs);
  EXPECT_EQ(session_.NextDeadline(), now_ + kAnswerUs) << "a hello has more time";
}

TEST_F(OrchestratorSessionTest, AnOrchestratorThatAnotherOneHasFollowedIsRefused) {
  Connect();
  for (const Generation& former : {Generation{2, {1}}, Generation{3, {2}}}) {
    Break();
    now_ = session_.NextDeadline();
    EXPECT_EQ(Take<OpenLink>().hello.seen, kFirst);
    EXPECT_FALSE(Welcome(former));
    Take<CloseLink>();
    EXPECT_TRUE(absl::IsFailedPrecondition(session_.broken())) << session_.broken();
    EXPECT_FALSE(session_.ready());
    EXPECT_EQ(session_.generation(), kFirst);
  }
  now_ = session_.NextDeadline();
  Take<OpenLink>();
  EXPECT_TRUE(Welcome(kFirst)) << "the same one";
  Break();
  now_ = session_.NextDeadline();
  Take<OpenLink>();
  EXPECT_TRUE(Welcome({4, {2}})) << "its successor";
}

TEST_F(OrchestratorSessionTest, ReportsByAThirdOfTheLeaseAndSoonAfterAChange) {
  Connect();
  EXPECT_EQ(session_.NextDeadline(), now_ + kLeaseUs / 3);
  Report();
  session_.ReportSoon();
  EXPECT_TRUE(NothingIsDue()) << "too close to the one before";
  EXPECT_EQ(session_.NextDeadline(), now_ + 50);
  Report();
  EXPECT_EQ(session_.NextDeadline(), now_ + kLeaseUs / 3);
}

TEST_F(OrchestratorSessionTest, RepeatsEndsUntilAReportWasAnswered) {
  Connect();
  EXPECT_TRUE(End(1));
  EXPECT_EQ(EndsOfTheNextHello(), std::vector<uint64_t>{1}) << "nobody said that it was heard";
  EXPECT_TRUE(End(2)) << "the hello was sent: it goes behind it";
  ASSERT_TRUE(Welcome());
  EXPECT_EQ(EndsOfTheNextHello(), std::vector<uint64_t>{2}) << "the welcome answered the first";
  ASSERT_TRUE(Welcome());
  now_ = session_.NextDeadline();
  End(3);
  Take<SendRouterReport>();
  End(4);
  session_.OnReportTaken(now_);
  EXPECT_EQ(EndsOfTheNextHello(), std::vector<uint64_t>{4}) << "it was sent after the report";
}

TEST_F(OrchestratorSessionTest, RemembersTheLatestEnds) {
  Connect();
  for (uint64_t i = 1; i <= OrchestratorSession::kMaxEnded; ++i) End(i);
  now_ = session_.NextDeadline();
  Take<SendRouterReport>();
  End(OrchestratorSession::kMaxEnded + 1);  // the first is forgotten
  session_.OnReportTaken(now_);
  EXPECT_EQ(EndsOfTheNextHello(), std::vector<uint64_t>{OrchestratorSession::kMaxEnded + 1});
}

TEST_F(OrchestratorSessionTest, SaysGoodbyeAndLeavesOnce) {
  Connect();
  now_ = session_.NextDeadline();
  Take<SendRouterReport>();
  session_.Leave();
  EXPECT_TRUE(NothingIsDue()) << "the report is not answered yet";
  session_.OnReportTaken(now_);
  Take<SendRouterGoodbye>();
  EXPECT_TRUE(NothingIsDue());
  session_.OnGoodbyeTaken();
  Take<RouterHasLeft>();
  EXPECT_TRUE(NothingIsDue());
  EXPECT_EQ(session_.NextDeadline(), kNever);
}

TEST_F(OrchestratorSessionTest, LeavesAnOrchestratorThatCannotBeTold) {
  Connect();
  session_.Leave();
  Take<SendRouterGoodbye>();
  Break();
  Take<RouterHasLeft>();
  EXPECT_TRUE(NothingIsDue());
}

}  // namespace
}  // namespace skein::scheduler
