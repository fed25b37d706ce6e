// What a worker tells of what it holds: changes alone, all of it when a stream begins or when the
// orchestrator finds that it has missed something.
#include "scheduler/worker/membership/membership.h"

#include <gtest/gtest.h>

#include "scheduler/worker/testing/core_testing.h"

namespace skein::scheduler {
namespace {

constexpr TimeUs kLeaseUs = 3000;
constexpr TimeUs kLastWordsEndUs = 5 * kSecondUs;
constexpr TimeUs kEvidenceEndUs = 60 * kSecondUs;

class MembershipTest : public ::testing::Test {
 protected:
  MembershipTest() {
    const auto hello = Take<CallRegister>();
    EXPECT_TRUE(hello.has_value() && hello->request.stream == 1);
    membership_.On(RegisterReplied{{absl::OkStatus(), {3}, kLeaseUs}}, now_);
  }
  static MembershipConfig Config() {
    MembershipConfig config;
    config.identity = testing::Identity(Role::kDecode, 10);
    config.report_spacing_us = 10;
    config.report_spacing_per_request_us = 0;
    return config;
  }
  template <class Effect>
  std::optional<Effect> Take() {
    auto due = membership_.Due(
        now_, /*empty=*/false, [] { return WorkerLoad{}; },
        [this] {
          std::vector<HeldRequest> held;
          for (const auto& [key, one] : held_) held.push_back(one);
          return held;
        });
    if (!due.has_value()) return std::nullopt;
    Check();
    const Effect* effect = std::get_if<Effect>(&*due);
    return effect == nullptr ? std::nullopt : std::optional<Effect>(*effect);
  }
  // What is due when nothing is held.
  std::optional<MembershipEffect> Leaving() {
    return membership_.Due(
        now_, /*empty=*/true, [] { return WorkerLoad{}; },
        [] { return std::vector<HeldRequest>{}; });
  }
  void Check() {
    std::vector<HeldRequest> held;
    for (const auto& [key, one] : held_) held.push_back(one);
    EXPECT_TRUE(membership_.CheckInvariants(held).ok()) << membership_.CheckInvariants(held);
  }
  // The report that is due a sixth of the lease later, answered.
  ReportRequest Report(ReportReply reply = {}) {
    EXPECT_FALSE(Take<CallReport>().has_value());  // asked at the end of each event, as by a core
    now_ = std::max(now_ + 1, membership_.NextDeadline());
    const auto report = Take<CallReport>();
    EXPECT_TRUE(report.has_value());
    membership_.On(ReportReplied{report->request.serial, reply}, now_);
    Check();
    return report->request;
  }
  void Hold(uint64_t serial, bool opened = true, uint32_t chunks_done = 0,
            TimeUs chunk_since_us = kNever) {
    const HeldRequest held{
        .id = {7, serial}, .epoch = {5}, .opened = opened, .chunks_done = chunks_done};
    held_[{held.id, held.epoch}] = held;
    membership_.Holds(held, chunk_since_us);
  }
  void End(uint64_t serial) {
    held_.erase({{7, serial}, {5}});
    membership_.Ended({.id = {7, serial}, .epoch = {5}});
    Check();
  }
  uint64_t Digest() const {
    HeldDigest digest;
    for (const auto& [key, one] : held_) digest.Add(one.id, one.epoch);
    return digest.value();
  }

  TimeUs now_ = 1;
  std::map<std::pair<RequestId, Epoch>, HeldRequest> held_;
  Membership membership_{Config()};
};

TEST_F(MembershipTest, AThousandRequestsThatDoNothingAreToldOnce) {
  for (uint64_t serial = 1; serial <= 1000; ++serial) Hold(serial);
  const ReportRequest first = Report();
  EXPECT_EQ(first.held.size(), 1000u);
  EXPECT_FALSE(first.full);
  EXPECT_EQ(first.held_digest, Digest());
  const ReportRequest second = Report();
  EXPECT_TRUE(second.held.empty() && second.ended.empty() && second.gone.empty());
  EXPECT_EQ(second.held_digest, Digest());
}

// Only the worker believes in the stream. It has to open another one before its lease expires.
TEST_F(MembershipTest, AHalfOpenStreamIsClosedWithinTheLease) {
  const TimeUs heard_us = now_;
  now_ = membership_.NextDeadline();
  ASSERT_TRUE(Take<CallReport>().has_value());
  now_ = membership_.NextDeadline();
  ASSERT_TRUE(Take<CloseStream>().has_value());
  EXPECT_LE(now_, heard_us + kLeaseUs / 2) << "another one may lead by then";
  now_ = membership_.NextDeadline();
  EXPECT_TRUE(Take<CallRegister>().has_value());
  EXPECT_EQ(membership_.NextDeadline(), now_ + Config().answer_timeout_us) << "it has more time";
}

// The orchestrator may get a hello after the next one.
TEST_F(MembershipTest, EachHelloHasAHigherNumber) {
  for (const uint64_t stream : {2, 3}) {
    membership_.On(Disconnected{absl::UnavailableError("broke")}, now_);
    now_ = membership_.NextDeadline();
    EXPECT_EQ(Take<CallRegister>()->request.stream, stream);
  }
}

TEST_F(MembershipTest, AReportTellsWhatBeganMovedAndEnded) {
  Hold(1, /*opened=*/false);
  Hold(2, /*opened=*/false);
  Hold(3);
  Report();
  Hold(1, /*opened=*/true);
  End(2);
  held_.erase({{7, 3}, {5}});
  membership_.Gone({7, 3}, {5});
  Hold(4);
  End(4);  // before anybody heard of it
  Hold(5, true, /*chunks_done=*/2, /*chunk_since_us=*/now_);
  const TimeUs since_us = now_;
  const ReportRequest report = Report();
  ASSERT_EQ(report.held.size(), 2u);
  EXPECT_TRUE(report.held[0].opened);
  EXPECT_EQ(report.held[1].chunks_done, 2u);
  EXPECT_EQ(report.held[1].chunk_running_us, now_ - since_us);
  EXPECT_EQ(report.ended.size(), 2u);
  ASSERT_EQ(report.gone.size(), 1u);
  EXPECT_EQ(report.gone[0].id, (RequestId{7, 3}));
  EXPECT_EQ(report.held_digest, Digest());
  EXPECT_TRUE(Report().held.empty());
}

TEST_F(MembershipTest, AReportCollectsWhatHappensWithinItsSpacing) {
  Hold(1);
  Hold(2);
  Report();
  now_ += 100;  // the last report is long ago
  End(1);
  EXPECT_FALSE(Take<CallReport>().has_value()) << "not before what the end's request waits for";
  EXPECT_EQ(membership_.NextDeadline(), now_ + Config().report_spacing_us);
  now_ += Config().report_spacing_us / 2;
  End(2);
  EXPECT_FALSE(Take<CallReport>().has_value());
  now_ = membership_.NextDeadline();
  const auto report = Take<CallReport>();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->request.ended.size(), 2u);
  membership_.On(ReportReplied{report->request.serial, {}}, now_);
  EXPECT_GT(membership_.NextDeadline(), now_ + kLeaseUs / 8) << "nothing more is wanted soon";
}

TEST_F(MembershipTest, WhatIsWithdrawnAndHeldAgainIsToldAsBoth) {
  Hold(1);
  Report();
  membership_.Gone({7, 1}, {5});
  Hold(1, /*opened=*/false);
  const ReportRequest report = Report();
  EXPECT_EQ(report.gone.size(), 1u);
  EXPECT_EQ(report.held.size(), 1u) << "the receiver takes `held` last";
  EXPECT_EQ(report.held_digest, Digest());
}

TEST_F(MembershipTest, AllIsToldWhenTheDigestDidNotFitAndOnlyThen) {
  for (uint64_t serial = 1; serial <= 3; ++serial) Hold(serial);
  Report({.want_full = true});
  const ReportRequest full = Report();
  EXPECT_TRUE(full.full);
  EXPECT_EQ(full.held.size(), 3u);
  EXPECT_EQ(full.held_digest, Digest());
  EXPECT_FALSE(Report().full);
}

TEST_F(MembershipTest, AStreamBeginsWithAllAndTheLoad) {
  Hold(1);
  End(1);
  Hold(2);
  membership_.StartDrain();
  membership_.On(Disconnected{absl::UnavailableError("broke")}, now_);
  now_ = membership_.NextDeadline();
  const auto hello = Take<CallRegister>();
  ASSERT_TRUE(hello.has_value());
  EXPECT_EQ(hello->request.held.size(), 1u);
  EXPECT_EQ(hello->request.ended.size(), 1u);
  EXPECT_TRUE(hello->request.load.draining);
  Hold(3);
  membership_.On(RegisterReplied{{absl::OkStatus(), {3}, kLeaseUs}}, now_);
  EXPECT_TRUE(membership_.drain_told());
  const ReportRequest report = Report();
  ASSERT_EQ(report.held.size(), 1u) << "what came after the registration";
  EXPECT_EQ(report.held[0].id, (RequestId{7, 3}));
  EXPECT_TRUE(report.ended.empty());
  std::vector<HeldRequest> all;
  for (const auto& [key, one] : held_) all.push_back(one);
  EXPECT_TRUE(membership_.CheckInvariants(all).ok());
  all.pop_back();
  EXPECT_FALSE(membership_.CheckInvariants(all).ok());
}

TEST_F(MembershipTest, AnOrderToDrainMayBeUndoneUntilTheProcessStops) {
  EXPECT_TRUE(membership_.OrderDrain(true)) << "it drains from now on";
  EXPECT_FALSE(membership_.OrderDrain(true)) << "it does already";
  EXPECT_TRUE(Report().load.draining);
  EXPECT_TRUE(membership_.drain_told());
  EXPECT_FALSE(membership_.leaving()) << "it stays, empty";
  EXPECT_FALSE(membership_.OrderDrain(false));
  EXPECT_FALSE(Report().load.draining);
  EXPECT_TRUE(membership_.OrderDrain(true));
  membership_.StartDrain();
  EXPECT_FALSE(membership_.OrderDrain(false));
  EXPECT_TRUE(membership_.leaving());
  EXPECT_TRUE(Report().load.draining);
  EXPECT_FALSE(membership_.OrderDrain(true)) << "it drained before";
}

// An orchestrator that is away may come back: it must hear under which request an engine failed.
TEST_F(MembershipTest, TheLastWordsOfAFailedEngineWaitForAnOrchestrator) {
  const auto leaves_at = [this](bool engine_failed, TimeUs deadline_us, bool refuses) {
    Membership membership(Config());
    membership_ = std::move(membership);
    now_ = 0;
    Take<CallRegister>();
    membership_.On(RegisterReplied{{absl::OkStatus(), {3}, kLeaseUs}}, now_);
    membership_.On(Disconnected{absl::UnavailableError("gone")}, now_);
    membership_.Ended({.id = {7, 1}, .epoch = {5}, .engine_failed = engine_failed}, deadline_us);
    engine_failed ? membership_.StartLastWords(kLastWordsEndUs, kEvidenceEndUs)
                  : membership_.StartDrain();
    while (true) {
      now_ = std::max(now_, membership_.NextDeadline());
      const auto due = Leaving();
      if (due.has_value() && std::holds_alternative<Drained>(*due)) return now_;
      if (!due.has_value()) continue;
      EXPECT_EQ(std::get<CallRegister>(*due).request.ended.size(), 1u);
      const absl::Status gone = absl::UnavailableError("gone");
      if (refuses) membership_.On(RegisterReplied{{gone, {}, 0}}, now_);
      if (!refuses) membership_.On(Disconnected{gone}, now_);
    }
  };
  constexpr TimeUs kDeadlineUs = 30 * kSecondUs;
  EXPECT_LT(leaves_at(false, kDeadlineUs, false), kLastWordsEndUs / 2);
  const auto expect_left_at = [&](TimeUs end_us, TimeUs deadline_us, bool refuses) {
    const TimeUs left_us = leaves_at(true, deadline_us, refuses);
    EXPECT_GE(left_us, end_us);
    EXPECT_LE(left_us, end_us + Config().register_retry_us);
  };
  expect_left_at(kLastWordsEndUs, /*deadline_us=*/0, false);
  expect_left_at(kDeadlineUs, kDeadlineUs, false);  // the request may live so long
  expect_left_at(kDeadlineUs, kDeadlineUs, true);
  expect_left_at(kEvidenceEndUs, 2 * kEvidenceEndUs, false);
}

TEST_F(MembershipTest, AFailedEngineLeavesAsSoonAsItsLastWordsWereHeard) {
  membership_.On(Disconnected{absl::UnavailableError("gone")}, now_);
  membership_.Ended({.id = {7, 1}, .epoch = {5}, .engine_failed = true});
  membership_.StartLastWords(kLastWordsEndUs, kEvidenceEndUs);
  for (int i = 0; i < 5; ++i) {
    now_ = std::max(now_, membership_.NextDeadline());
    const auto hello = Leaving();
    ASSERT_TRUE(hello.has_value() && std::holds_alternative<CallRegister>(*hello));
    if (i < 4) membership_.On(Disconnected{absl::UnavailableError("gone")}, now_);
  }
  membership_.On(RegisterReplied{{absl::OkStatus(), {3}, kLeaseUs}}, now_);
  const auto leaves = Leaving();
  ASSERT_TRUE(leaves.has_value());
  EXPECT_TRUE(std::holds_alternative<CallUnregister>(*leaves));
}

TEST_F(MembershipTest, OneThatIsHeldBackDoesNotRegister) {
  membership_ = Membership(Config());
  membership_.HoldBack(true);
  EXPECT_FALSE(Take<CallRegister>().has_value());
  EXPECT_EQ(membership_.NextDeadline(), kNever);
  membership_.HoldBack(false);
  EXPECT_TRUE(Take<CallRegister>().has_value());
  membership_.HoldBack(true);
  membership_.On(RegisterReplied{{absl::OkStatus(), {3}, kLeaseUs}}, now_);
  membership_.On(Disconnected{absl::UnavailableError("gone")}, now_);
  now_ = membership_.NextDeadline();
  EXPECT_TRUE(Take<CallRegister>().has_value()) << "it is known there";
}

}  // namespace
}  // namespace skein::scheduler
