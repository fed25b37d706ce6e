// What is wrong with an answer is told by its kind, and how long a fault was felt.
#include "services/skeinctl/chaos/judge.h"

#include <functional>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "services/skeinctl/chaos/fault_table.h"
#include "services/skeinctl/chaos/scenario.h"
#include "services/skeinctl/chaos/stream_reader.h"

namespace skein::services::chaos {
namespace {

constexpr int kTokens = 60;

// Tokens of which none comes again soon, and a text that tells each by two characters.
Answer Expected() {
  Answer answer;
  for (int i = 0; i < kTokens; ++i) {
    answer.tokens.push_back(i * i % 101 + i);
    answer.text += {static_cast<char>('a' + i % 26), static_cast<char>('a' + i / 26)};
  }
  answer.finish_reason = "length";
  return answer;
}

// The expected answer, one token a tenth of a second, from 1 s on.
StreamRecord Good() {
  StreamRecord record;
  record.answer = Expected();
  for (int i = 0; i < kTokens; ++i) record.token_s.push_back(1 + i * 0.1);
  record.end_s = record.token_s.back();
  record.finishes = 1;
  record.done = true;
  record.usage_tokens = kTokens;
  return record;
}

StreamRecord With(const std::function<void(StreamRecord*)>& change) {
  StreamRecord record = Good();
  change(&record);
  return record;
}

Verdict Judged(const std::function<void(StreamRecord*)>& change) {
  return Judge(With(change), Expected());
}

TEST(Judge, AnEqualAnswerIsGood) { EXPECT_TRUE(Judge(Good(), Expected()).good()); }

TEST(Judge, ADroppedTokenIsLost) {
  for (const int at : {0, 1, 30, kTokens - 2, kTokens - 1}) {
    const Verdict verdict = Judged([&](StreamRecord* record) {
      record->answer.tokens.erase(record->answer.tokens.begin() + at);
    });
    EXPECT_EQ(verdict.lost_tokens, 1) << at;
    EXPECT_EQ(verdict.doubled_tokens, 0) << at;
    EXPECT_FALSE(verdict.good()) << at;
  }
}

TEST(Judge, TokensThatComeTwiceAreDoubled) {
  for (const int count : {1, 7, 20}) {
    for (const int at : {20, 40}) {
      const Verdict verdict = Judged([&](StreamRecord* record) {
        const Answer whole = Expected();
        auto& tokens = record->answer.tokens;
        tokens.insert(tokens.begin() + at, whole.tokens.begin() + at - count,
                      whole.tokens.begin() + at);
      });
      EXPECT_EQ(verdict.doubled_tokens, count) << at;
      EXPECT_EQ(verdict.lost_tokens, 0) << at;
      EXPECT_FALSE(verdict.wrong) << at;
    }
  }
}

TEST(Judge, ARepetitionBehindTheEndIsDoubled) {
  const Verdict verdict = Judged(
      [](StreamRecord* record) { record->answer.tokens.push_back(Expected().tokens.back()); });
  EXPECT_EQ(verdict.doubled_tokens, 1);
  EXPECT_FALSE(verdict.wrong);
}

TEST(Judge, AChangedTokenIsWrong) {
  for (const int at : {0, 25, kTokens - 1}) {
    const Verdict verdict =
        Judged([&](StreamRecord* record) { record->answer.tokens[at] = 100'000; });
    EXPECT_TRUE(verdict.wrong) << at;
  }
}

TEST(Judge, OtherTextReasonCountOrASecondEndIsWrong) {
  EXPECT_TRUE(Judged([](StreamRecord* r) { r->answer.text[8] = '#'; }).wrong);
  EXPECT_TRUE(Judged([](StreamRecord* r) { r->answer.text.pop_back(); }).wrong);
  EXPECT_TRUE(Judged([](StreamRecord* r) { r->answer.finish_reason = "stop"; }).wrong);
  EXPECT_TRUE(Judged([](StreamRecord* r) { r->usage_tokens = kTokens + 1; }).wrong);
  EXPECT_TRUE(Judged([](StreamRecord* r) { r->finishes = 2; }).wrong);
}

TEST(Judge, AnErrorFailsAndWhatCameBeforeMustBeTheBeginning) {
  const auto broken = [](StreamRecord* record) {
    record->answer.tokens.resize(10);
    record->answer.text.resize(20);
    record->token_s.resize(10);
    record->finishes = 0;
    record->done = false;
    record->error = "error event";
  };
  const Verdict verdict = Judged(broken);
  EXPECT_TRUE(verdict.failed);
  EXPECT_FALSE(verdict.wrong);
  EXPECT_EQ(verdict.lost_tokens, 0);
  EXPECT_TRUE(Judged([&](StreamRecord* record) {
                broken(record);
                record->answer.text[4] = '#';
              }).wrong);
}

TEST(Judge, AnAnswerWithoutEndHangsAndDoesNotFail) {
  const Verdict verdict = Judged([](StreamRecord* record) {
    record->answer.tokens.resize(10);
    record->answer.text.resize(20);
    record->finishes = 0;
    record->done = false;
    record->hung = true;
    record->error = "timeout";
  });
  EXPECT_TRUE(verdict.hung);
  EXPECT_FALSE(verdict.failed);
}

TEST(Effect, APauseThatBeginsWithTheFaultIsItsRecovery) {
  // The fault is at 3 s; the tokens behind it come 1.5 s later.
  const std::vector<StreamRecord> records = {Good(), With([](StreamRecord* record) {
                                               for (double& at : record->token_s) {
                                                 if (at > 3.05) at += 1.5;
                                               }
                                               record->end_s += 1.5;
                                             })};
  const FaultEffect effect =
      EffectOf(records, {.at_s = 3.02, .until_s = 3.02, .what = ""}, 0, 0.25);
  EXPECT_EQ(effect.running, 2);
  EXPECT_EQ(effect.stalled, 1);
  EXPECT_NEAR(effect.recovery_s, 1.58, 1e-9);
  ASSERT_EQ(effect.longest_gaps_s.size(), 2U);
  EXPECT_NEAR(effect.longest_gaps_s[0], 0.1, 1e-9);
  EXPECT_NEAR(effect.longest_gaps_s[1], 1.6, 1e-9);
}

TEST(Effect, ALaterPauseIsNoRecoveryButAGap) {
  const std::vector<StreamRecord> records = {With([](StreamRecord* record) {
    for (double& at : record->token_s) {
      if (at > 6) at += 2;
    }
    record->end_s += 2;
  })};
  FaultMark mark{.at_s = 2, .until_s = 2, .what = ""};
  EXPECT_EQ(EffectOf(records, mark, 0, 0.25).recovery_s, 0);
  EXPECT_NEAR(EffectOf(records, mark, 0, 0.25).longest_gaps_s.at(0), 2.1, 1e-9);
  mark.until_s = 5.5;  // a process that left then: the pause is its
  EXPECT_NEAR(EffectOf(records, mark, 0, 0.25).recovery_s, 2.1, 1e-9);
}

TEST(Effect, AStreamThatEndedOrHadNoTokenYetDidNotRun) {
  const std::vector<StreamRecord> records = {Good()};
  EXPECT_EQ(EffectOf(records, {.at_s = 0.5, .until_s = 0.5, .what = ""}, 0, 0.25).running, 0);
  EXPECT_EQ(EffectOf(records, {.at_s = 50, .until_s = 50, .what = ""}, 0, 0.25).running, 0);
}

StreamRecord ProbeOf(int64_t fault, int64_t chain, double token_s) {
  StreamRecord record;
  record.probed_fault = fault;
  record.probe_chain = chain;
  record.sent_s = 10;
  if (token_s > 0) record.token_s = {token_s};
  return record;
}

TEST(Effect, RecoveryWaitsForTheFirstTokenOfEachChainOfProbes) {
  const FaultMark mark{.at_s = 10, .until_s = 10, .what = ""};
  std::vector<StreamRecord> records = {ProbeOf(0, 0, 10.2), ProbeOf(0, 1, -1), ProbeOf(0, 1, 12),
                                       ProbeOf(1, 0, 19)};
  EXPECT_NEAR(EffectOf(records, mark, 0, 0.25).recovery_s, 2, 1e-9);
  records.push_back(ProbeOf(0, 2, -1));
  EXPECT_LT(EffectOf(records, mark, 0, 0.25).recovery_s, 0) << "a chain never got a token";
}

TEST(RowOf, CountsRequestsByKindAndIsBadForEach) {
  const FaultMark mark{.at_s = 3, .until_s = 3, .what = "kill decode-0"};
  const auto row_of = [&](const std::vector<StreamRecord>& records) {
    return RowOf("kill-decode", records, {Expected()}, {mark}, 0.25);
  };
  const Row good = row_of({Good(), Good()});
  EXPECT_TRUE(good.good());
  EXPECT_EQ(good.requests, 2);
  EXPECT_EQ(good.running(), 2);
  EXPECT_EQ(good.faults_that_met_streams(), 1);
  const StreamRecord failed = With([](StreamRecord* record) {
    record->error = "HTTP 503";
    record->message = "no instance";
    record->answer = {};
    record->token_s.clear();
    record->finishes = 0;
    record->done = false;
  });
  Row row = row_of({Good(), failed});
  EXPECT_EQ(row.failed, 1);
  EXPECT_EQ(row.errors.at("HTTP 503: no instance"), 1);
  EXPECT_FALSE(row.good());
  row.excused = 1;
  EXPECT_TRUE(row.good());
  row.wrong = 1;
  EXPECT_FALSE(row.good()) << "a wrong answer has no excuse";
}

TEST(RowOf, OnlyTheKilledRoutersOwnStreamsOfThatTimeAreExcused) {
  const FaultMark mark{.at_s = 3,
                       .until_s = 3,
                       .what = "kill router-1",
                       .router_loss = RouterLoss{
                           .router = 1, .breaks_off = true, .ended_s = 3.1, .serves_again_s = 5}};
  const auto excused = [](const FaultMark& mark, size_t router, double sent_s, double end_s) {
    StreamRecord record = Good();
    record.router = router;
    record.sent_s = sent_s;
    record.end_s = end_s;
    record.error = "connection lost";
    return RowOf("kill-router", {record}, {Expected()}, {mark}, 0.25).excused == 1;
  };
  EXPECT_TRUE(excused(mark, 1, 1, 3.05));
  EXPECT_FALSE(excused(mark, 0, 1, 3.05)) << "another router";
  EXPECT_FALSE(excused(mark, 1, 1, 2.9)) << "it had ended before";
  EXPECT_FALSE(excused(mark, 1, 4, 6)) << "it was sent after the router had ended";
  FaultMark unknown = mark;
  unknown.router_loss->router = -1;
  EXPECT_TRUE(excused(unknown, 0, 1, 3.05)) << "behind a load balancer the time decides";
  EXPECT_FALSE(excused(unknown, 0, 4, 6));
  FaultMark leaves = mark;
  leaves.router_loss->breaks_off = false;
  EXPECT_FALSE(excused(leaves, 1, 1, 3.05)) << "a router that leaves finishes its streams";
  FaultMark none = mark;
  none.router_loss.reset();
  EXPECT_FALSE(excused(none, 1, 1, 3.05)) << "the fault of another process";
}

TEST(RowOf, ARefusalIsExcusedWhileNoRouterIsLeft) {
  const FaultMark only{.at_s = 3,
                       .until_s = 4,
                       .what = "term router",
                       .router_loss = RouterLoss{
                           .router = 0, .leaves_none = true, .ended_s = 4, .serves_again_s = 6}};
  StreamRecord refused;
  refused.sent_s = 5;
  refused.end_s = 5.01;
  refused.error = "connect";
  EXPECT_TRUE(IsExcused(refused, only));
  FaultMark another = only;
  another.router_loss->leaves_none = false;
  EXPECT_FALSE(IsExcused(refused, another)) << "another router was there";
  refused.sent_s = 7;
  refused.end_s = 7.01;
  EXPECT_FALSE(IsExcused(refused, only)) << "the router served again";
}

TEST(RowOf, GapsHavePercentilesByNearestRank) {
  Row row;
  EXPECT_EQ(row.GapPercentile(99), 0);
  row.faults.emplace_back();
  for (int i = 1; i <= 100; ++i) row.faults[0].longest_gaps_s.push_back(i);
  EXPECT_EQ(row.GapPercentile(50), 50);
  EXPECT_EQ(row.GapPercentile(99), 99);
  EXPECT_EQ(row.GapPercentile(100), 100);
}

TEST(StreamReader, CollectsTokensTextAndEnd) {
  StreamRecord record;
  StreamReader reader(&record);
  reader.OnStatus(200);
  reader.OnBody("data: {\"choices\":[{\"text\":\"ab\",\"token_ids\":[5,6]}]}\n\nda", 1);
  reader.OnBody(
      "ta: {\"choices\":[{\"text\":\"c\",\"token_ids\":[7],\"finish_reason\":\"length\"}]}\n\n", 2);
  reader.OnBody("data: {\"choices\":[],\"usage\":{\"completion_tokens\":3}}\n\ndata: [DONE]\n\n",
                3);
  reader.OnEnd(4);
  EXPECT_TRUE(record.whole());
  EXPECT_EQ(record.answer.tokens, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(record.token_s, (std::vector<double>{1, 1, 2}));
  EXPECT_EQ(record.answer.text, "abc");
  EXPECT_EQ(record.answer.finish_reason, "length");
  EXPECT_EQ(record.usage_tokens, 3);
}

TEST(StreamReader, TellsErrorsByKind) {
  const auto error_of = [](int status, const std::string& body) {
    StreamRecord record;
    StreamReader reader(&record);
    reader.OnStatus(status);
    reader.OnBody(body, 1);
    reader.OnEnd(2);
    EXPECT_FALSE(record.whole());
    return record.error + ": " + record.message;
  };
  EXPECT_EQ(error_of(503, R"({"error":{"message":"no instance"}})"), "HTTP 503: no instance");
  EXPECT_EQ(error_of(200, "data: {\"error\":{\"message\":\"engine\"}}\n\ndata: [DONE]\n\n"),
            "error event: engine");
  EXPECT_EQ(error_of(200, "data: {\"choices\":[{\"token_ids\":[\"x\"]}]}\n\n").substr(0, 9),
            "bad event");
  EXPECT_EQ(error_of(200, "data: {\"choices\":[{\"text\":\"a\"}]}\n\n").substr(0, 18),
            "stream ended early");
}

TEST(FaultTable, HasARowForEachScenarioAndSaysWhatWasSkipped) {
  Row played = RowOf("kill-decode", {Good()}, {Expected()},
                     {{.at_s = 3, .until_s = 3, .what = "kill decode-0"}}, 0.25);
  Row skipped;
  skipped.scenario = "stop-decode";
  skipped.skipped = "cannot be";
  const TableHead head{
      .version = "1", .machine = "m", .cluster = "c", .load = "l", .stall_s = 0.25};
  const std::string text = FaultText(head, {played, skipped});
  EXPECT_NE(text.find("stop-decode: skipped: cannot be\n"), std::string::npos) << text;
  const auto json = nlohmann::json::parse(FaultJson(head, {played, skipped}));
  ASSERT_EQ(json["rows"].size(), 2U);
  const auto& row = json["rows"][0];
  EXPECT_EQ(row["scenario"], "kill-decode");
  EXPECT_EQ(row["good"], true);
  for (const char* column : {"failed", "wrong", "lost", "doubled", "hung"}) {
    EXPECT_EQ(row[column], 0) << column;
  }
  EXPECT_EQ(row["faults"][0]["what"], "kill decode-0");
  EXPECT_EQ(json["rows"][1]["skipped"], "cannot be");
  const std::string markdown = FaultMarkdown(head, {played, skipped});
  EXPECT_NE(markdown.find("| kill-decode | 1 | 1 | 0 | 0 | 0 | 0 | 0 | 0.00 | 0.10 | 0.10 |\n"),
            std::string::npos)
      << markdown;
}

TEST(Scenario, NamesAreDistinctAndTheFirstBreaksNothing) {
  EXPECT_EQ(Scenarios().front().play, Play::kNothing);
  for (const Scenario& one : Scenarios()) {
    EXPECT_EQ(FindScenario(one.name), &one) << one.name;
    EXPECT_LT(one.name.size(), 18U) << "the help has a column for it";
  }
  EXPECT_EQ(FindScenario("kill-nothing"), nullptr);
}

}  // namespace
}  // namespace skein::services::chaos
