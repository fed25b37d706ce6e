// Choices of one prompt at a DecodeCore: they share its blocks, and each goes its own way. The pool
// has 10 blocks of 4 tokens; the test's engine writes a tag for each token into them, and checks
// before it samples that it reads what its own sequence should have there.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "scheduler/worker/testing/decode_core_fixture.h"

namespace skein::scheduler {
namespace {

using testing::DecodeCoreTest;
using testing::Of;
using testing::Spec;

class DecodeSharingTest : public DecodeCoreTest {
 protected:
  // Announces requests first, first + 1, …, all but the first with its prompt.
  void AnnounceChoices(uint64_t first, uint64_t choices, int64_t prompt_tokens,
                       int64_t max_tokens) {
    for (uint64_t serial = first; serial < first + choices; ++serial) {
      AnnounceRequest request{Spec(serial, prompt_tokens, max_tokens), {5}, {{2}}};
      if (serial > first) request.writers.clear(), request.prompt_of = RequestId{7, first};
      Do(AnnounceCalled{request, absl::OkStatus()});
    }
  }
  // The prompt's KV comes; then the routers of those that run attach. False: there is no room.
  bool Prefill(uint64_t first, uint64_t choices, int64_t prompt_tokens) {
    const OpenTransferReply opened = OpenTransfer(first);
    if (!opened.status.ok()) return false;
    const SpecPtr spec = Spec(first, prompt_tokens, 1);
    for (int64_t place = 0; place < prompt_tokens; ++place) {
      Write(opened.blocks, place, spec->prompt[static_cast<size_t>(place)]);
    }
    const int64_t bytes = (prompt_tokens + 3) / 4 * 128;
    Take(Commit(first, {bytes, bytes}, Token(first, 0)));
    for (uint64_t serial = first; serial < first + choices; ++serial) {
      if (StateOf(serial) != "") Take(Attach(serial, 50 + serial));
    }
    ++now_;
    return true;
  }
  bool Start(uint64_t first, uint64_t choices, int64_t prompt_tokens, int64_t max_tokens) {
    AnnounceChoices(first, choices, prompt_tokens, max_tokens);
    return Prefill(first, choices, prompt_tokens);
  }
  static int32_t Token(uint64_t serial, int64_t index) {
    return static_cast<int32_t>(1000 * static_cast<int64_t>(serial) + index);
  }
  void Take(const Effects& effects) {
    for (const EmitToken& token : Of<EmitToken>(effects)) {
      EXPECT_EQ(token.token, Token(token.id.serial, token.index));
      EXPECT_EQ(token.index, emitted_[token.id.serial]++);
    }
    for (const EndStream& end : Of<EndStream>(effects)) ++ends_[end.reason];
    for (const RunStep& step : Of<RunStep>(effects)) in_flight_ = step;
  }
  void Write(const std::vector<BlockId>& blocks, int64_t place, int32_t token) {
    kv_[{blocks[static_cast<size_t>(place / 4)], place % 4}] = {place, token};
  }
  void RunStepInFlight() {
    const RunStep step = std::exchange(in_flight_, {});
    StepDone done{.step = step.step, .status = {}, .results = {}};
    for (const StepSequence& one : step.sequences) {
      const int64_t end = one.position + one.count;
      for (int64_t place = one.position; place < end; ++place) {
        Write(*one.blocks, place, one.TokenAt(place));
        const BlockId written = (*one.blocks)[static_cast<size_t>(place / 4)];
        for (const StepSequence& other : step.sequences) {
          const auto count = std::count(other.blocks->begin(), other.blocks->end(), written);
          EXPECT_EQ(count, other.id == one.id ? 1 : 0) << "a shared block is written";
        }
      }
      computed_ += one.count;
    }
    for (const StepSequence& one : step.sequences) {
      for (int64_t place = 0; place < one.position + one.count; ++place) {
        const std::pair<int64_t, int32_t> tag{place, one.TokenAt(place)};
        EXPECT_EQ((kv_[{(*one.blocks)[static_cast<size_t>(place / 4)], place % 4}]), tag)
            << one.id.serial;
      }
      done.results.push_back({one.sample ? Token(one.id.serial, one.token_index) : -1, "p", ""});
    }
    ++now_;
    Take(Do(done));
  }
  void RunToTheEnd() {
    for (int steps = 0; in_flight_.step != 0 && steps < 1000; ++steps) RunStepInFlight();
    EXPECT_EQ(in_flight_.step, 0u) << "the engine still runs";
  }
  DecodeSnapshot Look() { return core_.Snapshot(now_); }
  std::string_view StateOf(uint64_t serial) { return core_.StateOf({7, serial}); }

  RunStep in_flight_;
  std::map<std::pair<BlockId, int64_t>, std::pair<int64_t, int32_t>> kv_;  // place and token
  int64_t computed_ = 0;                                                   // tokens, by steps
  std::map<uint64_t, int64_t> emitted_;                                    // by serial
  std::map<FinishReason, int> ends_;
};

TEST_F(DecodeSharingTest, ThePromptIsThereOnceAndEachChoiceSamplesItsOwnTokens) {
  ASSERT_TRUE(Start(1, 3, 14, 6));
  EXPECT_EQ(Look().running, 3);
  EXPECT_EQ(Look().blocks.held, 4 + 1 + 1);
  EXPECT_EQ(Look().blocks.shared, 3);
  RunStepInFlight();
  EXPECT_EQ(computed_, 1 + 2 + 2) << "the last two tokens of the prompt, for each choice";
  RunToTheEnd();
  for (const uint64_t serial : {1, 2, 3}) EXPECT_EQ(emitted_[serial], 6);
  EXPECT_EQ(ends_[FinishReason::kLength], 3);
  EXPECT_EQ(Held(), 0);
}

TEST_F(DecodeSharingTest, APromptOfWholeBlocksSharesAllButTheLast) {
  ASSERT_TRUE(Start(1, 2, 12, 3));
  EXPECT_EQ(Look().blocks.shared, 2);
  EXPECT_EQ(Look().blocks.held, 4 + 2);
  RunToTheEnd();
  EXPECT_EQ(emitted_[2], 3);
  EXPECT_EQ(Held(), 0);
}

TEST_F(DecodeSharingTest, APromptWithinABlockSharesNone) {
  ASSERT_TRUE(Start(1, 3, 1, 3));
  EXPECT_EQ(Look().blocks.shared, 0);
  RunToTheEnd();
  for (const uint64_t serial : {1, 2, 3}) EXPECT_EQ(emitted_[serial], 3);
}

TEST_F(DecodeSharingTest, TheFirstChoiceMayEndWithItsFirstTokenOrBeCancelled) {
  AnnounceRequest second{Spec(2, 14, 9), {5}, {}, RequestId{7, 1}};
  Announce(Spec(1, 14, 1));
  Do(AnnounceCalled{second, absl::OkStatus()});
  ASSERT_TRUE(Prefill(1, 2, 14));
  EXPECT_EQ(Look().blocks.shared, 0);
  EXPECT_EQ(Held(), 4) << "the second one's";
  RunToTheEnd();
  EXPECT_EQ(emitted_[2], 9);

  ASSERT_TRUE(Start(3, 3, 14, 9));
  Do(CancelCalled{{{7, 3}, {5}, "test"}});
  RunToTheEnd();
  EXPECT_EQ(emitted_[4], 9);
  EXPECT_EQ(emitted_[5], 9);
  EXPECT_EQ(Held(), 0);
}

TEST_F(DecodeSharingTest, WithoutTheFirstChoiceTheOthersArePlannedAnew) {
  AnnounceChoices(1, 3, 14, 6);
  EXPECT_EQ(StateOf(3), "announced");
  Do(CancelCalled{{{7, 1}, {5}, "test"}});
  for (const uint64_t serial : {2, 3}) {
    EXPECT_EQ(StateOf(serial), "");
    EXPECT_TRUE(absl::IsUnavailable(ended_[RequestId{7, serial}]));
  }
  // Its KV fails.
  AnnounceChoices(4, 2, 14, 6);
  ASSERT_TRUE(OpenTransfer(4).status.ok());
  Abort(4, absl::UnavailableError("stopped"));
  EXPECT_TRUE(absl::IsUnavailable(ended_[RequestId{7, 5}]));
  // It is withdrawn.
  AnnounceChoices(6, 2, 14, 6);
  Do(WithdrawCalled{{{7, 6}, {5}}});
  EXPECT_TRUE(absl::IsUnavailable(ended_[RequestId{7, 7}]));
  // It runs already.
  ASSERT_TRUE(Start(8, 1, 14, 6));
  Do(AnnounceCalled{{Spec(9, 14, 6), {5}, {}, RequestId{7, 8}}, absl::OkStatus()});
  EXPECT_TRUE(absl::IsUnavailable(ended_[RequestId{7, 9}]));
  RunToTheEnd();
  EXPECT_EQ(Held(), 0);
}

TEST_F(DecodeSharingTest, WhoHasNoRoomOrAnotherPromptDoesNotShare) {
  ASSERT_TRUE(Start(1, 7, 14, 2));
  EXPECT_EQ(Look().running, 5) << "four blocks, one for each, and two stay free";
  EXPECT_TRUE(absl::IsUnavailable(ended_[RequestId{7, 6}])) << ended_[RequestId{7, 6}];
  EXPECT_TRUE(absl::IsUnavailable(ended_[RequestId{7, 7}]));
  RunToTheEnd();
  AnnounceChoices(11, 1, 14, 2);
  Do(AnnounceCalled{{Spec(12, 13, 2), {5}, {}, RequestId{7, 11}}, absl::OkStatus()});
  ASSERT_TRUE(Prefill(11, 1, 14));
  EXPECT_TRUE(absl::IsInvalidArgument(ended_[RequestId{7, 12}]));
  RunToTheEnd();
  EXPECT_EQ(Held(), 0);
}

TEST_F(DecodeSharingTest, APreemptedChoiceGivesUpItsReferencesAndTheOthersKeepTheirs) {
  ASSERT_TRUE(Start(1, 3, 14, 20));
  while (Look().preemptions == 0) RunStepInFlight();
  EXPECT_EQ(StateOf(3), "preempted");
  EXPECT_EQ(Look().blocks.shared, 3) << "of the first two";
  RunToTheEnd();
  for (const uint64_t serial : {1, 2, 3}) EXPECT_EQ(emitted_[serial], 20);
  EXPECT_EQ(Held(), 0);
}

// A late writer of the first choice keeps only those blocks from others that nobody shares.
TEST_F(DecodeSharingTest, QuarantinedBlocksMayBeSharedStill) {
  writers_live_ = false;
  AnnounceChoices(1, 2, 14, 6);
  ASSERT_TRUE(OpenTransfer(1, 5, /*writer=*/1).status.ok());
  ASSERT_TRUE(OpenTransfer(1, 5, /*writer=*/3).status.ok());
  ASSERT_TRUE(Prefill(1, 2, 14));
  Do(CancelCalled{{{7, 1}, {5}, "test"}});
  EXPECT_EQ(StateOf(2), "running");
  while (in_flight_.step != 0 && emitted_[2] < 2) RunStepInFlight();
  EXPECT_EQ(Look().blocks.quarantined, 1);
  RunToTheEnd();
  EXPECT_EQ(emitted_[2], 6);
  EXPECT_EQ(Look().blocks.quarantined, 4);
  Do(GrantClosed{{1}});
  EXPECT_EQ(Held(), 0);
}

// Any choices, prompts and cancels: each token as alone, every block read as written, all free at
// the end.
TEST_F(DecodeSharingTest, RandomChoicesShareDivergeAndGiveTheirBlocksBack) {
  std::mt19937_64 random(1);
  const auto below = [&](uint64_t limit) { return random() % limit; };
  uint64_t next = 1, shared = 0, whole = 0;
  for (int round = 0; round < 600; ++round) {
    if (below(4) == 0) {
      const uint64_t choices = 1 + below(4);
      const auto prompt_tokens = static_cast<int64_t>(1 + below(16));
      const auto max_tokens = static_cast<int64_t>(1 + below(16));
      if (!Start(next, choices, prompt_tokens, max_tokens)) {
        Do(CancelCalled{{{7, next}, {5}, "no room"}});
      }
      next += choices;
      shared = std::max<uint64_t>(shared, static_cast<uint64_t>(Look().blocks.shared));
    }
    if (next > 1 && below(12) == 0) {
      Take(Do(CancelCalled{{{7, 1 + below(next - 1)}, {5}, "test"}}));
    }
    if (in_flight_.step != 0) RunStepInFlight();
  }
  RunToTheEnd();
  whole = static_cast<uint64_t>(ends_[FinishReason::kLength]);
  EXPECT_GT(whole, 100u);
  EXPECT_GT(shared, 2u);
  EXPECT_GT(Look().preemptions, 10u);
  EXPECT_EQ(Held(), 0);
}

}  // namespace
}  // namespace skein::scheduler
