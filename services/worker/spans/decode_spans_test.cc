#include "services/worker/spans/decode_spans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "scheduler/worker/decode/decode_core.h"
#include "scheduler/worker/testing/decode_core_fixture.h"
#include "services/worker/spans/testing/watched_core.h"

namespace skein::services {
namespace {

using scheduler::testing::DecodeTestConfig;
using scheduler::testing::Of;
using scheduler::testing::Spec;
using testing::kParent;
using testing::kTraced;
using testing::kUnsampled;
using testing::Named;
using testing::Number;
using WatchedDecode = testing::WatchedCoreTest<scheduler::DecodeCore, scheduler::DecodeEvent,
                                               scheduler::DecodeEffect, DecodeSpans>;

// 10 blocks of 4 tokens.
class DecodeSpansTest : public WatchedDecode {
 protected:
  DecodeSpansTest() : WatchedDecode(DecodeTestConfig()) {}
  Effects Do(const scheduler::DecodeEvent& event) {
    Effects effects = WatchedDecode::Do(event);
    for (const auto& step : Of<scheduler::RunStep>(effects)) in_flight_ = step;
    return effects;
  }
  void Begin(uint64_t serial, int64_t prompt_tokens, int64_t max_tokens,
             const std::string& traceparent) {
    auto spec = Spec(serial, prompt_tokens, max_tokens);
    spec->traceparent = traceparent;
    const RequestId id = spec->id;
    Do(scheduler::AnnounceCalled{{spec, {5}, {{2}}}, absl::OkStatus()});
    Do(scheduler::OpenTransferCalled{
        {++calls_}, {id, {5}, {1}, {2}, DecodeTestConfig().membership.identity.shape}});
    Do(scheduler::AttachCalled{{++calls_}, id, {5}});
    const int64_t bytes = (prompt_tokens + 3) / 4 * 128;
    Do(scheduler::CommitCalled{{++calls_},
                               {.id = id,
                                .epoch = {5},
                                .bytes_per_layer = {bytes, bytes},
                                .has_token = true,
                                .token = 40,
                                .prefill = {1}}});
  }
  void RunToTheEnd() {
    for (int i = 0; in_flight_.step != 0 && i < 1000; ++i) {
      const auto step = std::exchange(in_flight_, {});
      scheduler::StepDone done{.step = step.step, .status = {}, .results = {}};
      done.results.assign(step.sequences.size(), {41, "", ""});
      Do(done);
    }
  }

  uint64_t calls_ = 1000;
  scheduler::RunStep in_flight_;
};

// The children of `whole` follow each other from its beginning to its end.
void ExpectSeamless(const Span& whole, std::vector<Span> all) {
  std::erase_if(all, [&](const Span& span) { return span.parent != whole.context.span; });
  std::sort(all.begin(), all.end(),
            [](const Span& a, const Span& b) { return a.start_unix_ns < b.start_unix_ns; });
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.front().start_unix_ns, whole.start_unix_ns);
  EXPECT_EQ(all.back().end_unix_ns, whole.end_unix_ns);
  for (size_t i = 1; i < all.size(); ++i) {
    EXPECT_EQ(all[i].start_unix_ns, all[i - 1].end_unix_ns) << all[i].name;
  }
}

TEST_F(DecodeSpansTest, ARequestIsOneSpanWhosePartsFollowEachOther) {
  Begin(1, 6, 4, kTraced);
  EXPECT_EQ(spans_.open(), 1u);
  RunToTheEnd();
  EXPECT_EQ(spans_.open(), 0u);
  const std::vector<Span> all = tracer_.Take(100);
  const auto whole = Named(all, "decode");
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0].parent, kParent);
  EXPECT_FALSE(whole[0].failed);
  EXPECT_EQ(Number(whole[0], "skein.instance"), 3);
  EXPECT_EQ(Number(whole[0], "skein.epoch"), 5);
  EXPECT_EQ(Number(whole[0], "skein.tokens"), 4);
  EXPECT_EQ(Number(whole[0], "skein.steps"), 3) << "the prefill has sampled one";
  EXPECT_EQ(Number(whole[0], "skein.preemptions"), 0);
  ASSERT_EQ(whole[0].events.size(), 2u);
  EXPECT_EQ(whole[0].events[0].name, "blocks granted");
  EXPECT_EQ(whole[0].events[1].name, "first token");
  for (const char* part : {"decode.kv_wait", "decode.queue", "decode.steps"}) {
    EXPECT_EQ(Named(all, part).size(), 1u) << part;
  }
  ExpectSeamless(whole[0], all);
}

TEST_F(DecodeSpansTest, APreemptedOneShowsWhenAndWhatWasComputedAnew) {
  Begin(1, 14, 20, kTraced);
  Begin(2, 14, 20, kTraced);
  RunToTheEnd();
  EXPECT_EQ(spans_.open(), 0u);
  const std::vector<Span> all = tracer_.Take(1000);
  const auto wholes = Named(all, "decode");
  ASSERT_EQ(wholes.size(), 2u);
  int64_t preemptions = 0;
  for (const Span& whole : wholes) {
    ExpectSeamless(whole, all);
    preemptions += Number(whole, "skein.preemptions");
    if (Number(whole, "skein.preemptions") == 0) continue;
    EXPECT_GT(Number(whole, "skein.recomputed_tokens"), 14);
    EXPECT_EQ(Number(whole, "skein.tokens"), 20);
  }
  EXPECT_GT(preemptions, 0);
  EXPECT_EQ(static_cast<int64_t>(Named(all, "decode.preempted").size()), preemptions);
}

TEST_F(DecodeSpansTest, OthersHaveNoSpans) {
  Begin(1, 6, 4, "");
  Begin(2, 6, 4, kUnsampled);
  Begin(3, 6, 4, "not a traceparent");
  EXPECT_EQ(spans_.open(), 0u);
  RunToTheEnd();
  EXPECT_TRUE(tracer_.Take(100).empty());
}

TEST_F(DecodeSpansTest, WhatIsCancelledHasEnded) {
  Begin(1, 6, 4, kTraced);
  Do(scheduler::CancelCalled{{.id = {7, 1}, .epoch = {5}, .why = "its client has gone"}});
  EXPECT_EQ(spans_.open(), 0u);
  const auto whole = Named(tracer_.Take(100), "decode");
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_TRUE(whole[0].failed);
}

// After a loss of the orchestrator; the second one has blocks, and its end is reported.
TEST_F(DecodeSpansTest, WhatTheOrchestratorDoesNotKnowHasEnded) {
  auto spec = Spec(1);
  spec->traceparent = kTraced;
  Do(scheduler::AnnounceCalled{{spec, {5}, {{2}}}, absl::OkStatus()});
  Begin(2, 6, 4, kTraced);
  ASSERT_EQ(spans_.open(), 2u);
  Do(scheduler::Disconnected{absl::UnavailableError("gone")});
  now_ += 10'000'000;
  ASSERT_EQ(Of<scheduler::CallRegister>(Do(scheduler::Tick{})).size(), 1u);
  scheduler::RegisterReply reply{absl::OkStatus(), {4}, 1'000'000'000};
  for (const uint64_t serial : {1, 2}) {
    reply.cancel.push_back({.id = {7, serial}, .epoch = {5}, .opened = false});
  }
  Do(scheduler::RegisterReplied{reply});
  EXPECT_EQ(spans_.open(), 1u);
  const auto whole = Named(tracer_.Take(100), "decode");
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_TRUE(whole[0].failed);
  RunToTheEnd();
  EXPECT_EQ(spans_.open(), 0u);
}

TEST_F(DecodeSpansTest, WithoutATracerNothingIsWatched) {
  DecodeSpans off(nullptr);
  auto spec = Spec(1);
  spec->traceparent = kTraced;
  off.Saw(scheduler::AnnounceCalled{{spec, {5}, {{2}}}, absl::OkStatus()}, {}, 1);
  EXPECT_EQ(off.open(), 0u);
}

}  // namespace
}  // namespace skein::services
