#include "services/tracing/tracer.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "services/shell/loop.h"

namespace skein::services {
namespace {

Span Of(const SpanContext& context, std::string name = "span") {
  Span span;
  span.context = context;
  span.name = std::move(name);
  return span;
}

SpanContext Unsampled(uint8_t trace) { return {.trace = {trace}, .span = 1, .sampled = false}; }
SpanContext Sampled(uint8_t trace) { return {.trace = {trace}, .span = 1, .sampled = true}; }

TEST(Sampling, FollowsTheParentWhateverTheRatio) {
  const Tracer all({.ratio = 1}), none({.ratio = 0});
  EXPECT_FALSE(all.Begin(Unsampled(7)).sampled);
  EXPECT_TRUE(none.Begin(Sampled(7)).sampled);
  EXPECT_EQ(none.Begin(Sampled(7)).trace, Sampled(7).trace);
  EXPECT_NE(none.Begin(Sampled(7)).span, Sampled(7).span);
  EXPECT_TRUE(all.Begin(std::nullopt).sampled);
  EXPECT_FALSE(none.Begin(std::nullopt).sampled);
}

TEST(Sampling, WithoutAParentIsByRatio) {
  const Tracer tracer({.ratio = 0.1});
  int sampled = 0;
  for (int i = 0; i < 20'000; ++i) sampled += tracer.Begin(std::nullopt).sampled ? 1 : 0;
  EXPECT_GT(sampled, 1'600);  // 2,000 on average, with a standard deviation of 42
  EXPECT_LT(sampled, 2'400);
}

TEST(Tracer, KeepsSampledSpansForTheExporterInOrder) {
  Tracer tracer({});
  tracer.Record(Of(Sampled(1), "a"));
  tracer.Record(Of(Unsampled(2), "not wanted"));
  tracer.Record(Of(Sampled(1), "b"));
  EXPECT_EQ(tracer.Queued(), 2u);
  const std::vector<Span> first = tracer.Take(1), rest = tracer.Take(10);
  ASSERT_EQ(first.size(), 1u);
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(first[0].name, "a");
  EXPECT_EQ(rest[0].name, "b");
  EXPECT_EQ(tracer.counts().recorded, 2u);
}

TEST(Tracer, DropsAndCountsWhatFindsNoRoom) {
  Tracer spans({.queue_spans_max = 2});
  for (int i = 0; i < 5; ++i) spans.Record(Of(Sampled(1)));
  EXPECT_EQ(spans.counts().recorded, 2u);
  EXPECT_EQ(spans.counts().dropped, 3u);
  spans.Take(1);
  spans.Record(Of(Sampled(1)));
  EXPECT_EQ(spans.counts().recorded, 3u);

  Tracer bytes({.queue_bytes_max = 3000});
  Span large = Of(Sampled(1));
  large.attributes.emplace_back("text", std::string(2000, 'x'));
  bytes.Record(large);
  bytes.Record(large);
  EXPECT_EQ(bytes.counts().dropped, 1u);
}

TEST(Tracer, HoldsUnsampledSpansOnlyWhileSlownessCounts) {
  Tracer without({}), with({.slow_us = 1000});
  EXPECT_FALSE(without.Wants(Unsampled(1)));
  EXPECT_TRUE(without.Wants(Sampled(1)));
  EXPECT_TRUE(with.Wants(Unsampled(1)));
  EXPECT_TRUE(with.IsSlow(1000));
  EXPECT_FALSE(with.IsSlow(999));
  EXPECT_FALSE(without.IsSlow(1 << 30));
  with.Record(Of(Unsampled(1)));
  EXPECT_EQ(with.Queued(), 0u);
  EXPECT_EQ(with.counts().held, 1u);
}

TEST(Tracer, ExportsAKeptTraceWithWhatCameBeforeAndAfter) {
  Tracer tracer({.slow_us = 1});
  tracer.Record(Of(Unsampled(1), "before"));
  tracer.Record(Of(Unsampled(2), "another trace"));
  tracer.Keep(Unsampled(1).trace);
  tracer.Keep(Unsampled(1).trace);
  tracer.Record(Of(Unsampled(1), "after"));
  const std::vector<Span> spans = tracer.Take(10);
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].name, "before");
  EXPECT_EQ(spans[1].name, "after");
  EXPECT_TRUE(spans[0].context.sampled);
  EXPECT_EQ(tracer.counts().kept, 1u);
  EXPECT_EQ(tracer.counts().held, 1u);
}

TEST(Tracer, HoldsSoManyAndDropsTheOldestTraceFirst) {
  Tracer tracer({.slow_us = 1, .held_spans_max = 3, .kept_traces_max = 2});
  for (uint8_t trace = 1; trace <= 5; ++trace) tracer.Record(Of(Unsampled(trace)));
  EXPECT_EQ(tracer.counts().held, 3u);
  tracer.Keep(Unsampled(1).trace);
  EXPECT_EQ(tracer.Queued(), 0u);
  tracer.Keep(Unsampled(5).trace);
  EXPECT_EQ(tracer.Queued(), 1u);
  tracer.Keep(Unsampled(4).trace);
  // The first of three kept traces is forgotten: its further spans are held again.
  tracer.Record(Of(Unsampled(1)));
  EXPECT_EQ(tracer.Queued(), 2u);
  EXPECT_EQ(tracer.counts().held, 2u);

  Tracer bytes({.slow_us = 1, .held_bytes_max = 10'000});
  Span large = Of(Unsampled(1));
  large.attributes.emplace_back("text", std::string(4000, 'x'));
  for (uint8_t trace = 1; trace <= 9; ++trace) {
    large.context = Unsampled(trace);
    bytes.Record(large);
  }
  EXPECT_EQ(bytes.counts().held, 2u);
  large.attributes.emplace_back("more", std::string(20'000, 'x'));
  bytes.Record(large);
  EXPECT_EQ(bytes.counts().held, 0u);
}

TEST(Tracer, TellsTheWallClocksTimeOfAMoment) {
  const Tracer tracer({});
  const int64_t before = MonotonicUs();
  EXPECT_EQ(tracer.UnixNs(before + 5) - tracer.UnixNs(before), 5000);
  EXPECT_GT(tracer.UnixNs(before), int64_t{1'700'000'000} * 1'000'000'000);
}

TEST(Tracer, IsUsedByManyThreads) {
  Tracer tracer({.slow_us = 1, .queue_spans_max = 100, .held_spans_max = 100});
  std::vector<std::thread> threads;
  for (uint8_t t = 1; t <= 4; ++t) {
    threads.emplace_back([&tracer, t] {
      for (int i = 0; i < 1000; ++i) {
        tracer.Record(Of(Sampled(t)));
        tracer.Record(Of(Unsampled(static_cast<uint8_t>(t + 10))));
        if (i % 100 == 0) tracer.Keep(Unsampled(static_cast<uint8_t>(t + 10)).trace);
        if (i % 10 == 0) tracer.Take(5);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(tracer.Queued(), 100u);
  EXPECT_LE(tracer.counts().held, 100u);
}

}  // namespace
}  // namespace skein::services
