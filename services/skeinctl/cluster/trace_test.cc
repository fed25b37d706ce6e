#include "services/skeinctl/cluster/trace.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/flags/flags.h"
#include "services/skeinctl/cluster/trace_tree.h"

namespace skein::services {
namespace {

constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr int64_t kBeginNs = 1'795'824'000'000'000'000;  // 2026-11-28 00:00:00 UTC

// One span as /debug/trace has it; times in microseconds from kBeginNs. `more`: members of its
// attributes, and `rest` further ones of the span, as JSON with a leading comma.
std::string SpanJson(const std::string& id, const std::string& parent, const std::string& name,
                     int64_t start_us, int64_t end_us, const std::string& more,
                     const std::string& rest = "", const std::string& trace = kTrace) {
  return absl::StrCat(R"({"trace":")", trace, R"(","span":")", id, R"(","parent":")", parent,
                      R"(","name":")", name, R"(","start_unix_ns":)", kBeginNs + start_us * 1000,
                      R"(,"end_unix_ns":)", kBeginNs + end_us * 1000, R"(,"attributes":{)", more,
                      "}", rest, "}");
}

std::string PageOf(const std::vector<std::string>& spans) {
  std::string list;
  for (const std::string& span : spans) absl::StrAppend(&list, list.empty() ? "" : ",", span);
  return absl::StrCat(R"({"tracing":true,"spans":[)", list, "]}");
}

// A recorded request: planned on two prefill instances, preempted once while it was decoded.
std::vector<ProcessSpans> Recorded() {
  const std::string prefill = R"("skein.request_id":"7/1","skein.role":"prefill-worker",)";
  const std::string decode =
      R"("skein.request_id":"7/1","skein.role":"decode-worker","skein.instance":5)";
  const std::string orchestrator = R"("skein.request_id":"7/1","skein.role":"orchestrator")";
  return {
      ParseSpans(
          "router 127.0.0.1:8000",
          PageOf({SpanJson("a1", "ff", "chat m", 0, 100'000,
                           R"("gen_ai.request.model":"m","gen_ai.usage.input_tokens":4096,)"
                           R"("gen_ai.usage.output_tokens":20,"skein.request_id":"x-1")"),
                  SpanJson("a2", "a1", "tokenize", 0, 2'000, ""),
                  SpanJson("a3", "a1", "first token", 2'000, 50'000, ""),
                  SpanJson("a4", "a1", "stream", 50'000, 100'000, ""),
                  SpanJson("a5", "a1", "attempt", 2'000, 99'500, R"("skein.request_id":"7/1")")})),
      ParseSpans("orchestrator 127.0.0.1:7100",
                 PageOf({SpanJson("b2", "b1", "plan", 2'200, 2'300,
                                  orchestrator + R"(,"skein.policy":"tetris","skein.chunks":1,)"
                                                 R"("skein.estimated_us":40000)"),
                         SpanJson("b3", "b1", "placement", 2'300, 3'000,
                                  orchestrator + R"(,"skein.decode":5)"),
                         SpanJson("b1", "a5", "schedule", 2'200, 100'800, orchestrator)})),
      ParseSpans(
          "prefill-worker 127.0.0.1:7200",
          PageOf({SpanJson("c1", "a5", "prefill", 2'500, 50'000, prefill + R"("skein.instance":3)"),
                  SpanJson("c2", "c1", "chunk", 3'000, 48'000,
                           prefill + R"("skein.instance":3,"skein.chunk":0,"skein.sp":2,)"
                                     R"("skein.tp":1,"skein.rank":0,"skein.tokens":2048)"),
                  SpanJson("c3", "c1", "handoff", 2'600, 50'000, prefill + R"("skein.instance":3)"),
                  SpanJson("c4", "c3", "handoff.put", 3'000, 49'500,
                           prefill + R"("skein.instance":3,"skein.bytes":12345678,)"
                                     R"("skein.gb_per_s":0.2655,"skein.path":"direct")")})),
      ParseSpans(
          "decode-worker 127.0.0.1:7300",
          PageOf({SpanJson("d1", "a5", "decode", 2'400, 99'000, decode,
                           R"(,"events":[{"unix_ns":1795824000050100000,"name":"first token",)"
                           R"("attributes":{}}],"failed":false,"failure":"")"),
                  SpanJson("d2", "d1", "decode.steps", 50'200, 70'000, decode),
                  SpanJson("d3", "d1", "decode.preempted", 70'000, 80'000, decode),
                  SpanJson("d4", "d1", "decode.steps", 80'000, 99'000,
                           decode + R"(,"skein.recomputed_tokens":4106)")})),
      {.process = "prefill-worker 127.0.0.1:7201", .error = "nothing listens there"}};
}

// clang-format off
constexpr char kGolden[] = R"(
trace 4bf92f3577b34da6a3ce929d0e0e4736, 2026-11-28 00:00:00.000 UTC: 100.0 ms, 16 spans of 4 processes
span                    process                begins        takes |                                |
chat m                  router                 0.0 ms     100.0 ms |================================| input_tokens 4096, output_tokens 20
  tokenize              router                 0.0 ms       2.0 ms |=                               |
  first token           router                 2.0 ms      48.0 ms | ===============                |
  attempt               router                 2.0 ms      97.5 ms | ===============================|
    schedule            orchestrator           2.2 ms      98.6 ms | ===============================|
      plan              orchestrator           2.2 ms       0.1 ms | =                              | policy tetris, chunks 1, estimated 40.0 ms
      placement         orchestrator           2.3 ms       0.7 ms | =                              | decode 5
    decode              decode-worker 5        2.4 ms      96.6 ms | ===============================|
      - first token                           50.1 ms              |                .               |
      decode.steps      decode-worker 5       50.2 ms      19.8 ms |                ======          |
      decode.preempted  decode-worker 5       70.0 ms      10.0 ms |                      ====      |
      decode.steps      decode-worker 5       80.0 ms      19.0 ms |                          ======| recomputed_tokens 4106
    prefill             prefill-worker 3       2.5 ms      47.5 ms | ===============                |
      handoff           prefill-worker 3       2.6 ms      47.4 ms | ===============                |
        handoff.put     prefill-worker 3       3.0 ms      46.5 ms | ===============                | bytes 12.3 MB, gb_per_s 0.266, path direct
      chunk             prefill-worker 3       3.0 ms      45.0 ms | ==============                 | chunk 0, sp 2, tp 1, rank 0, tokens 2048
  stream                router                50.0 ms      50.0 ms |                ================|

Spans without children cover 100.0 % of the request's time.
Spans of other processes lie up to 1.3 ms outside those that they belong to: clocks of hosts differ, or messages were on their way.
Not asked, or no answer: prefill-worker 127.0.0.1:7201: nothing listens there
)";
// clang-format on

TEST(TraceTest, ARecordedTreeIsDrawn) { EXPECT_EQ("\n" + TraceText(TreeOf(Recorded())), kGolden); }

TEST(TraceTest, OneSpanOfOneProcessIsNotPlural) {
  const TraceTree tree =
      TreeOf({ParseSpans("router x", PageOf({SpanJson("1", "", "a", 0, 5, "")}))});
  EXPECT_NE(TraceText(tree).find(": 0.0 ms, 1 span of 1 process\n"), std::string::npos)
      << TraceText(tree);
}

TEST(TraceTest, EachSpanStandsUnderItsParent) {
  const TraceTree tree = TreeOf(Recorded());
  ASSERT_EQ(tree.spans.size(), 16u);
  EXPECT_EQ(tree.spans[0].name, "chat m");
  for (size_t i = 1; i < tree.spans.size(); ++i) {
    ASSERT_GE(tree.parents[i], 0) << tree.spans[i].name;
    const auto parent = static_cast<size_t>(tree.parents[i]);
    EXPECT_EQ(tree.spans[i].parent, tree.spans[parent].span);
    EXPECT_EQ(tree.depths[i], tree.depths[parent] + 1);
    EXPECT_LT(parent, i);
  }
  EXPECT_DOUBLE_EQ(tree.Covered(), 1);
  EXPECT_EQ(tree.OutsideNs(), 1'300'000) << "the orchestrator heard of the end later";
}

TEST(TraceTest, TheLatestOfSeveralTracesIsTaken) {
  const std::string other(32, '1');
  const TraceTree tree =
      TreeOf({ParseSpans("router x", PageOf({SpanJson("1", "", "old", 0, 5, ""),
                                             SpanJson("2", "", "new", 10, 15, "", "", other)}))});
  ASSERT_EQ(tree.spans.size(), 1u);
  EXPECT_EQ(tree.spans[0].name, "new");
  EXPECT_EQ(tree.other_traces, 1u);
}

TEST(TraceTest, WhatLacksItsParentIsShownAllTheSame) {
  const TraceTree tree =
      TreeOf({ParseSpans("decode-worker x", PageOf({SpanJson("d1", "a5", "decode", 0, 10, ""),
                                                    SpanJson("d2", "d1", "decode.steps", 0, 10, ""),
                                                    SpanJson("e1", "a5", "prefill", 2, 8, "")}))});
  EXPECT_EQ(tree.parents, (std::vector<int>{-1, 0, -1}));
  EXPECT_NE(TraceText(tree).find("its parent is not known"), std::string::npos);
}

TEST(TraceTest, ASpanThatTwoAnswersHaveIsOne) {
  std::vector<ProcessSpans> twice = Recorded();
  for (ProcessSpans& one : Recorded()) twice.push_back(std::move(one));
  EXPECT_EQ(TreeOf(std::move(twice)).spans.size(), 16u);
}

TEST(TraceTest, AnswersThatAreNoneAreErrors) {
  for (const char* bad : {"", "[]", "{}", "not found", R"({"spans":7})"}) {
    EXPECT_NE(ParseSpans("p", bad).error, "") << bad;
  }
  EXPECT_EQ(ParseSpans("p", R"({"tracing":false,"spans":[]})").error, "");
  EXPECT_TRUE(ParseSpans("p", R"({"spans":[7,"x"]})").spans.empty());
  const TraceTree tree = TreeOf({ParseSpans("p", "not found")});
  EXPECT_TRUE(tree.spans.empty());
  EXPECT_EQ(TraceText(tree), "");
  EXPECT_EQ(tree.silent.size(), 1u);
}

TEST(TraceFlagsTest, AFurtherProcessIsNamedByItsAddress) {
  const auto parse = [](const char* also) {
    TraceFlags flags;
    FlagSet set("A program.");
    flags.Register(&set);
    const char* const argv[] = {"trace", "x-1", "--also", also};
    return set.Parse(4, argv, {});
  };
  EXPECT_TRUE(parse("127.0.0.1:7201,[::1]:7202").ok());
  EXPECT_EQ(parse("127.0.0.1:7201,foo").message(), "--also: 'foo' is not HOST:PORT");
}

TEST(TraceTest, ThatNothingIsFoundIsExplained) {
  const std::vector<ProcessSpans> off = {{.process = "router x"}};
  const std::vector<ProcessSpans> on = {{.process = "router x", .tracing = true}};
  EXPECT_NE(WhyNoTrace("x-1", off, true).find("--trace-endpoint"), std::string::npos);
  EXPECT_NE(WhyNoTrace("x-1", on, true).find("was not sampled"), std::string::npos);
  EXPECT_NE(WhyNoTrace("x-1", on, false).find("does not know it"), std::string::npos);
}

}  // namespace
}  // namespace skein::services
