#include "services/orchestrator/request_spans.h"

#include <gtest/gtest.h>

#include <memory>

namespace skein::services {
namespace {

using scheduler::Explanation;
using scheduler::PlanExplanation;

constexpr char kTraced[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
constexpr int64_t kSubmittedUs = 1'000'000;

scheduler::TracedEnded Ended(Explanation explanation, const char* traceparent = kTraced) {
  auto spec = std::make_shared<scheduler::RequestHead>();
  spec->id = explanation.id;
  spec->traceparent = traceparent;
  return {spec, kSubmittedUs, std::make_shared<const Explanation>(std::move(explanation))};
}

// It lost its first plan at 400 us; the second one was placed at 900.
Explanation Replanned() {
  Explanation explanation;
  explanation.id = {7, 1};
  explanation.policy = "tetris";
  explanation.state = "completed: max_tokens";
  explanation.ended_us = 5000;
  explanation.degraded[static_cast<size_t>(scheduler::Degraded::kReplanned)] = 1;
  PlanExplanation first{.epoch = {1}, .decided_us = 100, .how = "soonest"};
  first.lost = "its instance was lost";
  first.lost_us = 400;
  PlanExplanation second{.epoch = {2}, .decided_us = 600, .how = "soonest"};
  second.chunks = {{.tokens = 8, .instances = {{3}, {4}}, .started_us = 100, .ended_us = 300}};
  second.waiting_us = 700;
  second.placed_us = 900;
  second.refusals = 1;
  second.decode = {5};
  second.switches = {{.epoch = 9, .from = 1, .to = 2, .began_us = 1000, .ended_us = 1200}};
  explanation.plans = {first, second};
  return explanation;
}

struct Times {
  int64_t start_us = 0, end_us = 0;  // from the submission
  bool operator==(const Times&) const = default;
};

Times TimesOf(const Tracer& tracer, const Span& span) {
  const int64_t origin_ns = tracer.UnixNs(kSubmittedUs);
  return {(span.start_unix_ns - origin_ns) / 1000, (span.end_unix_ns - origin_ns) / 1000};
}

std::ostream& operator<<(std::ostream& out, const Times& times) {
  return out << times.start_us << " to " << times.end_us;
}

TEST(RequestSpansTest, EachPlanHasASpanForItsDecisionAndOneForItsPlacement) {
  Tracer tracer{TracerOptions()};
  RecordRequestSpans(Ended(Replanned()), &tracer);
  const std::vector<Span> spans = tracer.Take(100);
  ASSERT_EQ(spans.size(), 5u);
  const Span& whole = spans.back();
  EXPECT_EQ(whole.name, "schedule");
  EXPECT_EQ(whole.parent, uint64_t{0x00f067aa0ba902b7});
  EXPECT_EQ(TimesOf(tracer, whole), (Times{0, 5000}));
  const std::vector<std::string> names = {"plan", "placement", "plan", "placement"};
  const std::vector<Times> times = {{0, 100}, {100, 400}, {400, 600}, {600, 900}};
  const std::vector<bool> failed = {false, true, false, false};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(spans[i].name, names[i]);
    EXPECT_EQ(spans[i].parent, whole.context.span);
    EXPECT_EQ(TimesOf(tracer, spans[i]), times[i]);
    EXPECT_EQ(spans[i].failed, failed[i]);
  }
  EXPECT_EQ(spans[1].failure, "its instance was lost");
}

TEST(RequestSpansTest, ChunksLostPlansAndSwitchesAreEvents) {
  Tracer tracer{TracerOptions()};
  RecordRequestSpans(Ended(Replanned()), &tracer);
  const Span whole = tracer.Take(100).back();
  std::vector<std::string> names;
  for (const SpanEvent& event : whole.events) names.push_back(event.name);
  EXPECT_EQ(names, (std::vector<std::string>{"plan given up", "chunk began", "chunk ended",
                                             "formation switch"}));
}

TEST(RequestSpansTest, NothingOfWhatNobodyWants) {
  Tracer tracer{TracerOptions()};
  RecordRequestSpans(Ended(Replanned(), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"),
                     &tracer);
  RecordRequestSpans(Ended(Replanned(), "nonsense"), &tracer);
  EXPECT_TRUE(tracer.Take(100).empty());
  RecordRequestSpans(Ended(Replanned()), nullptr);
}

}  // namespace
}  // namespace skein::services
