#include "services/worker/spans/prefill_spans.h"

#include <gtest/gtest.h>

#include "scheduler/worker/prefill/prefill_core.h"
#include "scheduler/worker/testing/prefill_core_fixture.h"
#include "services/worker/spans/testing/watched_core.h"

namespace skein::services {
namespace {

using scheduler::testing::PrefillTestConfig;
using scheduler::testing::Spec;
using testing::kParent;
using testing::kSelf;
using testing::kTraced;
using testing::kUnsampled;
using testing::Named;
using testing::Number;
using WatchedPrefill = testing::WatchedCoreTest<scheduler::PrefillCore, scheduler::PrefillEvent,
                                                scheduler::PrefillEffect, PrefillSpans>;

// Blocks of 4 tokens, steps of at most 4 tokens. In SP plans its instance works with instance 1.
class PrefillSpansTest : public WatchedPrefill {
 protected:
  PrefillSpansTest() : WatchedPrefill(PrefillTestConfig()) {}
  Effects Assign(uint64_t serial, int64_t prompt_tokens, const std::string& traceparent) {
    auto spec = Spec(serial, prompt_tokens);
    spec->traceparent = traceparent;
    return Do(scheduler::AssignCalled{{++calls_}, {spec, {5}, {calls_}}});
  }
  Effects Step(absl::Status status = absl::OkStatus()) {
    std::vector<scheduler::StepResult> results;
    if (status.ok()) results.push_back({40, "p", "l"});
    return Do(scheduler::StepDone{++step_, std::move(status), std::move(results)});
  }
  void Grant(uint64_t serial) {
    Do(scheduler::PlaceDecodeReplied{{7, serial}, {5}, {{}, {{5}, {4}, "d:1"}}});
    Do(scheduler::OpenTransferReplied{
        {7, serial}, {5}, {{}, {{8}, {9}}, {}, "memory", 900'000'000}});
  }

  uint64_t calls_ = 0;
  uint64_t step_ = 0;
};

TEST_F(PrefillSpansTest, APlainPromptIsQueuedOneChunkAndAHandoff) {
  Assign(1, 6, kTraced);
  Grant(1);
  Step();
  Step();
  Do(scheduler::HandoffDone{{7, 1}, {5}, {256, 256}, {.path = "direct", .transport = "tcp"}});
  Do(scheduler::CommitReplied{{7, 1}, {5}, {}});
  EXPECT_EQ(spans_.open(), 0u);
  const std::vector<Span> all = tracer_.Take(100);
  const auto whole = Named(all, "prefill");
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0].parent, kParent);
  EXPECT_FALSE(whole[0].failed);
  EXPECT_EQ(Number(whole[0], "skein.tokens"), 6);
  EXPECT_EQ(Number(whole[0], "skein.instance"), 3);
  const auto queue = Named(all, "prefill.queue");
  const auto chunk = Named(all, "chunk");
  const auto handoff = Named(all, "handoff");
  ASSERT_TRUE(queue.size() == 1 && chunk.size() == 1 && handoff.size() == 1);
  EXPECT_EQ(queue[0].start_unix_ns, whole[0].start_unix_ns);
  EXPECT_EQ(chunk[0].start_unix_ns, queue[0].end_unix_ns);
  EXPECT_EQ(Number(chunk[0], "skein.tokens"), 6);
  EXPECT_EQ(Number(chunk[0], "skein.steps"), 2);
  EXPECT_EQ(Number(chunk[0], "skein.sp"), 1);
  EXPECT_EQ(handoff[0].end_unix_ns, whole[0].end_unix_ns);
  for (const char* part : {"handoff.open", "handoff.put", "handoff.commit"}) {
    const auto found = Named(all, part);
    ASSERT_EQ(found.size(), 1u) << part;
    EXPECT_EQ(found[0].parent, handoff[0].context.span) << part;
    EXPECT_GE(found[0].start_unix_ns, handoff[0].start_unix_ns) << part;
    EXPECT_LE(found[0].end_unix_ns, handoff[0].end_unix_ns) << part;
  }
  EXPECT_EQ(Number(Named(all, "handoff.put")[0], "skein.bytes"), 512);
  EXPECT_EQ(all.size(), 7u);
}

TEST_F(PrefillSpansTest, ARefusedOneHasFailed) {
  Assign(1, 400, kTraced);
  EXPECT_EQ(spans_.open(), 0u);
  const auto whole = Named(tracer_.Take(100), "prefill");
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_TRUE(whole[0].failed);
}

TEST_F(PrefillSpansTest, ACancelledOneEndsWithAllThatWasOpen) {
  Assign(1, 6, kTraced);
  Grant(1);
  Do(scheduler::CancelCalled{{.id = {7, 1}, .epoch = {5}, .why = "its client has gone"}});
  Do(scheduler::HandoffStopped{{7, 1}, {5}});
  Step();
  EXPECT_EQ(spans_.open(), 0u);
  const std::vector<Span> all = tracer_.Take(100);
  ASSERT_EQ(Named(all, "prefill").size(), 1u);
  EXPECT_TRUE(Named(all, "prefill")[0].failed);
  EXPECT_EQ(Named(all, "chunk").size(), 1u);
  EXPECT_EQ(Named(all, "handoff").size(), 1u);
}

TEST_F(PrefillSpansTest, OthersHaveNoSpans) {
  Assign(1, 6, "");
  Assign(2, 3, kUnsampled);
  EXPECT_EQ(spans_.open(), 0u);
  Step();
  EXPECT_TRUE(tracer_.Take(100).empty());
}

// Its member's own events, as ring steps make them.
TEST_F(PrefillSpansTest, EachChunkOfAnSpPlanIsASpanWithItsShapeAndRank) {
  auto spec = Spec(1, 16);
  spec->traceparent = kTraced;
  scheduler::AssignRequest assign{.spec = spec, .epoch = {5}, .sequence = {1}};
  assign.members = {{{kSelf}, {9}, "w:3", "c3"}, {{1}, {7}, "w:1", "c1"}};
  assign.chunks = {{.tokens = 8, .members = {0}, .estimated_us = 1500},
                   {.tokens = 8, .members = {0, 1}, .estimated_us = 2500}};
  assign.placed = {.epoch = {5}, .decode = {4}, .endpoint = "d:1"};
  Do(scheduler::AssignCalled{{++calls_}, assign});
  Do(scheduler::OpenTransferReplied{
      {7, 1}, {5}, {{}, {{6}, {7}, {8}, {9}}, {}, "memory", 900'000'000}});
  Do(scheduler::StartCalled{{{7, 1}, {5}, {{5}, {4}, "d:1"}}});
  for (int i = 0; i < 8; ++i) Step();
  EXPECT_TRUE(tracer_.Take(100).empty()) << "they are recorded together, at its end";
  Do(scheduler::HandoffDone{{7, 1}, {5}, {256, 256}});
  Do(scheduler::CommitReplied{{7, 1}, {5}, {}});
  EXPECT_EQ(spans_.open(), 0u);
  const auto chunks = Named(tracer_.Take(100), "chunk");
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_EQ(Number(chunks[0], "skein.chunk"), 0);
  EXPECT_EQ(Number(chunks[0], "skein.sp"), 1);
  EXPECT_EQ(Number(chunks[0], "skein.tokens"), 8);
  EXPECT_EQ(Number(chunks[0], "skein.estimated_us"), 1500);
  EXPECT_EQ(Number(chunks[1], "skein.chunk"), 1);
  EXPECT_EQ(Number(chunks[1], "skein.sp"), 2);
  EXPECT_EQ(Number(chunks[1], "skein.rank"), 0);
  EXPECT_EQ(Number(chunks[1], "skein.tokens"), 4) << "the other member has the rest";
  EXPECT_EQ(Number(chunks[1], "skein.all_tokens"), 8);
  EXPECT_GE(chunks[1].start_unix_ns, chunks[0].end_unix_ns);
}

}  // namespace
}  // namespace skein::services
