// DecodeCore with staging buffers: turns, parts, and what a dead or late writer can no longer do.
#include <gtest/gtest.h>

#include <optional>

#include "scheduler/base/testing/pass_until.h"
#include "scheduler/worker/decode/decode_core.h"
#include "scheduler/worker/testing/core_testing.h"

namespace skein::scheduler {
namespace {

using testing::Of;
using testing::Spec;

class DecodeStagingTest : public ::testing::Test {
 protected:
  using Effects = std::vector<DecodeEffect>;

  static DecodeConfig Config() {
    DecodeConfig config;
    config.membership.identity = testing::Identity(Role::kDecode, 20);
    config.memory = "memory";
    config.lease_us = 1000;
    config.attach_lease_us = 100'000;
    config.staging = {.memory = {"buffer"}, .slots = 2, .acquire_wait_us = 100, .hold_us = 200};
    return config;
  }

  Effects Do(const DecodeEvent& event) {
    Effects effects = core_.Handle(event, now_);
    EXPECT_TRUE(core_.CheckInvariants().ok()) << core_.CheckInvariants();
    if (!writers_live_) return effects;
    for (const CloseGrant& closing : Of<CloseGrant>(effects)) {
      for (const DecodeEffect& more : Do(GrantClosed{closing.grant})) effects.push_back(more);
    }
    return effects;
  }
  Effects Until(TimeUs end) {
    Effects all;
    PassUntil(
        end, &now_, [this] { return core_.NextDeadline(); },
        [&] {
          for (const DecodeEffect& effect : Do(Tick{})) all.push_back(effect);
        });
    return all;
  }
  CallId Call() { return {++calls_}; }
  // A request of two prompt blocks, granted to `writers`.
  void Begin(uint64_t serial, std::vector<uint64_t> writers) {
    Do(AnnounceCalled{{Spec(serial), {5}, {{2}}}, absl::OkStatus()});
    for (uint64_t writer : writers) {
      const OpenTransferRequest request{.id = {7, serial},
                                        .epoch = {5},
                                        .prefill = {writer},
                                        .incarnation = {2},
                                        .shape = Config().membership.identity.shape};
      const OpenTransferReply reply =
          Of<AnswerOpenTransfer>(Do(OpenTransferCalled{Call(), request}))[0].reply;
      EXPECT_TRUE(reply.status.ok());
      EXPECT_EQ(reply.staging_slots, 2);
      EXPECT_TRUE(reply.blocks.empty());
      EXPECT_EQ(reply.memory, "");
    }
  }
  Effects Ask(uint64_t serial, uint64_t writer, uint64_t ask = 1) {
    return Do(AcquireStagingBufferCalled{Call(), {{7, serial}, {5}, {writer}, ask}});
  }
  // What an Ask was answered, if it was.
  static std::optional<absl::Status> Answered(const Effects& effects) {
    const auto answers = Of<AnswerAcquireStagingBuffer>(effects);
    if (answers.empty()) return std::nullopt;
    EXPECT_EQ(answers[0].reply.memory, answers[0].reply.status.ok() ? "buffer" : "");
    return answers[0].reply.status;
  }
  bool Has(uint64_t serial, uint64_t writer, uint64_t ask = 1) {
    return Answered(Ask(serial, writer, ask)) == absl::OkStatus();
  }
  Effects Part(uint64_t serial, uint64_t writer, uint64_t part, std::vector<StagedBlock> blocks) {
    return Do(TakePartCalled{Call(), {{7, serial}, {5}, {writer}, part, std::move(blocks)}});
  }
  Effects Copied(const Effects& part) {
    return Do(PartCopied{Of<CopyPart>(part)[0].copy, absl::OkStatus()});
  }
  static absl::Status StatusOf(const Effects& part) {
    return Of<AnswerTakePart>(part)[0].reply.status;
  }
  Effects Release(uint64_t serial, uint64_t writer, uint64_t ask) {
    return Do(ReleaseStagingBufferCalled{Call(), {{7, serial}, {5}, {writer}, ask}});
  }
  absl::Status Commit(uint64_t serial, uint64_t writer, int64_t bytes, bool has_token = true) {
    const auto effects = Do(CommitCalled{Call(),
                                         {.id = {7, serial},
                                          .epoch = {5},
                                          .bytes_per_layer = {bytes, bytes},
                                          .has_token = has_token,
                                          .token = 40,
                                          .prefill = {writer}}});
    return Of<AnswerCommit>(effects)[0].reply.status;
  }
  void Renew(uint64_t serial, uint64_t writer) {
    Do(RenewCalled{Call(), {{7, serial}, {5}, {writer}}});
  }

  TimeUs now_ = 0;
  uint64_t calls_ = 1000;
  bool writers_live_ = true;  // their grants are closed at once
  DecodeCore core_{Config()};
};

TEST_F(DecodeStagingTest, APartIsCopiedIntoItsBlocksBeforeItsSlotsAreFree) {
  Begin(1, {1});
  ASSERT_TRUE(Has(1, 1));
  const std::vector<StagedBlock> blocks = {{0, 0, 1}, {1, 1, 0}};
  Effects effects = Part(1, 1, 1, blocks);
  EXPECT_TRUE(Of<AnswerTakePart>(effects).empty());
  const CopyPart copy = Of<CopyPart>(effects)[0];
  EXPECT_EQ(copy.buffer, 0);
  EXPECT_EQ(copy.part, blocks);
  EXPECT_EQ((*copy.blocks)[1], BlockId{1});
  EXPECT_EQ(StatusOf(Part(1, 1, 1, blocks)).code(), absl::StatusCode::kUnavailable);  // not yet
  EXPECT_TRUE(StatusOf(Copied(effects)).ok());
  effects = Part(1, 1, 1, blocks);  // the same call, late
  EXPECT_TRUE(StatusOf(effects).ok());
  EXPECT_TRUE(Of<CopyPart>(effects).empty()) << "its slots hold something else by now";
  EXPECT_TRUE(Commit(1, 1, 256).ok());
}

TEST_F(DecodeStagingTest, RequestsTakeTurnsInTheOrderOfTheirFirstAsking) {
  Begin(1, {1, 2});
  Begin(2, {1});
  ASSERT_TRUE(Has(1, 1));
  EXPECT_FALSE(Answered(Ask(2, 1)).has_value());  // waits
  EXPECT_FALSE(Answered(Ask(1, 2)).has_value());
  // The request keeps it until its last chunk: its other writer is next.
  Effects effects = Do(CommitCalled{Call(),
                                    {.id = {7, 1},
                                     .epoch = {5},
                                     .bytes_per_layer = {128, 128},
                                     .has_token = false,
                                     .prefill = {1}}});
  EXPECT_EQ(Answered(effects), absl::OkStatus());
  EXPECT_EQ(core_.Snapshot(now_).staging_buffer_waiting, 1);
  effects = Do(CommitCalled{Call(),
                            {.id = {7, 1},
                             .epoch = {5},
                             .bytes_per_layer = {128, 128},
                             .has_token = true,
                             .token = 40,
                             .prefill = {2}}});
  EXPECT_EQ(Answered(effects), absl::OkStatus());
  EXPECT_EQ(core_.Snapshot(now_).staging_buffer_waiting, 0);
}

TEST_F(DecodeStagingTest, AnAskIsAnsweredNotYetAfterAWhile) {
  Begin(1, {1});
  Begin(2, {1});
  ASSERT_TRUE(Has(1, 1));
  EXPECT_FALSE(Answered(Ask(2, 1)).has_value());
  EXPECT_FALSE(Answered(Until(99)).has_value());
  EXPECT_EQ(Answered(Until(100))->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(Answered(Ask(2, 1)).has_value());
  EXPECT_EQ(Answered(Ask(2, 1))->code(), absl::StatusCode::kResourceExhausted);  // of the older
  Do(CancelCalled{{{7, 2}, {5}, "test"}});
  EXPECT_EQ(Answered(Ask(2, 1))->code(), absl::StatusCode::kCancelled);
}

TEST_F(DecodeStagingTest, WhoHasNothingToPutLetsOthersGoFirst) {
  Begin(1, {1});
  Begin(2, {1});
  ASSERT_TRUE(Has(1, 1));
  EXPECT_FALSE(Answered(Ask(2, 1)).has_value());
  Release(1, 1, 1);
  EXPECT_TRUE(Has(1, 1, 2));  // still its own
  Release(1, 1, 1);           // duplicate of the first release
  EXPECT_EQ(Answered(Ask(1, 1, 2)), absl::OkStatus());
  Release(1, 1, 2);
  Until(199);
  EXPECT_FALSE(Has(2, 1));
  EXPECT_EQ(Answered(Until(200)), absl::OkStatus());  // held for so long
}

TEST_F(DecodeStagingTest, Invariant2ABlockWaitsForTheCopyIntoItAndForNothingElse) {
  Begin(1, {1});
  ASSERT_TRUE(Has(1, 1));
  const Effects part = Part(1, 1, 1, {{0, 0, 0}});
  Do(CancelCalled{{{7, 1}, {5}, "test"}});
  EXPECT_EQ(core_.Snapshot(now_).blocks.held, 2);
  EXPECT_EQ(StatusOf(Copied(part)).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(core_.Snapshot(now_).blocks.held, 0);
  EXPECT_EQ(core_.Snapshot(now_).staging_buffers_held, 1);  // its writer may still put
  Do(AbortCalled{{{7, 1}, {5}, absl::CancelledError("test"), {1}, {2}}});
  EXPECT_EQ(core_.Snapshot(now_).staging_buffers_held, 0);
}

TEST_F(DecodeStagingTest, ADeadWriterLosesItsStagingBufferAfterItsLease) {
  Begin(1, {1});
  Begin(2, {1});
  ASSERT_TRUE(Has(1, 1));
  for (const TimeUs at : {300, 600, 900}) {
    Until(at);
    Renew(2, 1);
    EXPECT_FALSE(Has(2, 1)) << at;
  }
  EXPECT_EQ(core_.Snapshot(now_).staging_buffers_held, 1);
  writers_live_ = false;
  Until(999);
  EXPECT_FALSE(Has(2, 1));
  const auto closing = Of<CloseGrant>(Until(1000));
  ASSERT_EQ(closing.size(), 1u);
  EXPECT_EQ(Answered(Do(GrantClosed{closing[0].grant})), absl::OkStatus());
}

TEST_F(DecodeStagingTest, APartThatCannotBeIsRefusedByName) {
  Begin(1, {1, 2});
  ASSERT_TRUE(Has(1, 1));
  const auto why = [&](uint64_t writer, uint64_t part, StagedBlock block) {
    return std::string(StatusOf(Part(1, writer, part, {block})).message());
  };
  EXPECT_EQ(why(1, 1, {2, 0, 0}), "slot: 2 is out of range");
  EXPECT_EQ(why(1, 1, {0, 2, 0}), "layer: 2 is out of range");
  EXPECT_EQ(why(1, 1, {0, 0, 2}), "block: 2 is out of range");
  EXPECT_EQ(why(1, 2, {0, 0, 0}), "part: 2 is out of range");
  EXPECT_EQ(why(2, 1, {0, 0, 0}), "the writer has no staging buffer");
  EXPECT_EQ(why(3, 1, {0, 0, 0}), "no transfer is open for this writer");
  Part(1, 1, 1, {{0, 0, 0}});
  EXPECT_EQ(Commit(1, 1, 256).message(), "commit: a staged part is still being copied");
}

TEST(DecodeOneSidedTest, HasNoStagingBuffers) {
  DecodeConfig config;
  config.membership.identity = testing::Identity(Role::kDecode, 10);
  DecodeCore core(config);
  const auto effects = core.Handle(AcquireStagingBufferCalled{{1}, {{7, 1}, {5}, {1}, 1}}, 0);
  EXPECT_EQ(Of<AnswerAcquireStagingBuffer>(effects)[0].reply.status.code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace skein::scheduler
