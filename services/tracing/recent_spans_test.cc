#include "services/tracing/recent_spans.h"

#include <gtest/gtest.h>

#include <string>

namespace skein::services {
namespace {

constexpr size_t kBytes = 100;  // of each span, as far as the ring is told

Span SpanOf(uint8_t trace, std::string name, std::vector<SpanAttribute> attributes = {}) {
  Span span;
  span.context.trace[15] = trace;
  span.context.span = trace;
  span.name = std::move(name);
  span.attributes = std::move(attributes);
  return span;
}

std::vector<std::string> Names(const RecentSpans& spans, std::string_view id) {
  std::vector<std::string> names;
  for (const SpanPtr& span : spans.Find(id)) names.push_back(span->name);
  return names;
}

using Texts = std::vector<std::string>;

TEST(RecentSpansTest, ATraceIsFoundByItsIdAndByWhatItsSpansAreCalled) {
  RecentSpans spans(10, 10 * kBytes);
  spans.Add(SpanOf(1, "a", {{"skein.request_id", "7/1"}}), kBytes);
  spans.Add(SpanOf(2, "b", {{"skein.request_id", "7/2"}}), kBytes);
  spans.Add(SpanOf(1, "c", {{"ids", Texts{"chatcmpl-1", "x"}}, {"tokens", 7}}), kBytes);
  EXPECT_EQ(Names(spans, "00000000000000000000000000000001"), (Texts{"a", "c"}));
  EXPECT_EQ(Names(spans, "7/1"), (Texts{"a", "c"}));
  EXPECT_EQ(Names(spans, "chatcmpl-1"), (Texts{"a", "c"}));
  EXPECT_EQ(Names(spans, "7/2"), Texts{"b"});
  EXPECT_EQ(Names(spans, "7"), Texts{});
  EXPECT_EQ(Names(spans, ""), Texts{});
}

TEST(RecentSpansTest, TheOldestGoWhenThereAreTooMany) {
  RecentSpans spans(2, 10 * kBytes);
  for (uint8_t trace : {1, 2, 3}) spans.Add(SpanOf(trace, "a", {{"n", "x"}}), kBytes);
  EXPECT_EQ(spans.size(), 2u);
  EXPECT_EQ(Names(spans, "00000000000000000000000000000001"), Texts{});
  EXPECT_EQ(spans.Find("x").size(), 2u);
}

TEST(RecentSpansTest, TheOldestGoWhenTheyAreTooLarge) {
  RecentSpans spans(10, 2 * kBytes);
  for (uint8_t trace : {1, 2, 3}) spans.Add(SpanOf(trace, "a"), kBytes);
  EXPECT_EQ(spans.size(), 2u);
  spans.Add(SpanOf(4, "larger than all"), 3 * kBytes);
  EXPECT_EQ(spans.size(), 2u);
}

}  // namespace
}  // namespace skein::services
