// What is wrong with an answer is told by its kind, and how long a fault was felt.
#include "services/skeinctl/chaos/judge.h"

#include <functional>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "services/skeinctl/chaos/fault_table.h"
#include "services/skeinctl/chaos/load_mix.h"
#include "services/skeinctl/chaos/near_tie.h"
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

Reference Alone() {
  return {.kind = "greedy", .greedy = true, .prompt = {1, 2}, .choices = {Expected()}};
}

// The expected answer, one token a tenth of a second, from 1 s on.
StreamRecord Good() {
  StreamRecord record;
  record.choices[0].answer = Expected();
  for (int i = 0; i < kTokens; ++i) record.choices[0].token_s.push_back(1 + i * 0.1);
  record.end_s = record.choices[0].token_s.back();
  record.choices[0].finishes = 1;
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
  return Judge(With(change), Alone(), nullptr);
}

TEST(Judge, AnEqualAnswerIsGood) { EXPECT_TRUE(Judge(Good(), Alone(), nullptr).good()); }

TEST(Judge, ADroppedTokenIsLost) {
  for (const int at : {0, 1, 30, kTokens - 2, kTokens - 1}) {
    const Verdict verdict = Judged([&](StreamRecord* record) {
      record->choices[0].answer.tokens.erase(record->choices[0].answer.tokens.begin() + at);
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
        auto& tokens = record->choices[0].answer.tokens;
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
  const Verdict verdict = Judged([](StreamRecord* record) {
    record->choices[0].answer.tokens.push_back(Expected().tokens.back());
  });
  EXPECT_EQ(verdict.doubled_tokens, 1);
  EXPECT_FALSE(verdict.wrong);
}

TEST(Judge, AChangedTokenIsWrong) {
  for (const int at : {0, 25, kTokens - 1}) {
    const Verdict verdict =
        Judged([&](StreamRecord* record) { record->choices[0].answer.tokens[at] = 100'000; });
    EXPECT_TRUE(verdict.wrong) << at;
  }
}

TEST(Judge, OtherTextReasonCountOrASecondEndIsWrong) {
  EXPECT_TRUE(Judged([](StreamRecord* r) { r->choices[0].answer.text[8] = '#'; }).wrong);
  EXPECT_TRUE(Judged([](StreamRecord* r) { r->choices[0].answer.text.pop_back(); }).wrong);
  EXPECT_TRUE(Judged([](StreamRecord* r) { r->choices[0].answer.finish_reason = "stop"; }).wrong);
  EXPECT_TRUE(Judged([](StreamRecord* r) { r->usage_tokens = kTokens + 1; }).wrong);
  EXPECT_TRUE(Judged([](StreamRecord* r) { r->choices[0].finishes = 2; }).wrong);
}

TEST(Judge, EachChoiceIsJudgedAndNoneMayBeMissing) {
  Reference two = Alone();
  two.choices.push_back(Expected());
  two.choices[1].tokens[3] = 77;
  StreamRecord record = Good();
  EXPECT_TRUE(Judge(record, two, nullptr).wrong) << "the second choice is missing";
  record.choices.push_back(record.choices[0]);
  record.usage_tokens = 2 * kTokens;
  EXPECT_TRUE(Judge(record, two, nullptr).wrong) << "the second choice is another one";
  record.choices[1].answer.tokens[3] = 77;
  EXPECT_TRUE(Judge(record, two, nullptr).good());
  record.choices[1].answer.tokens.erase(record.choices[1].answer.tokens.begin() + 9);
  EXPECT_EQ(Judge(record, two, nullptr).lost_tokens, 1);
  EXPECT_TRUE(Judge(record, Alone(), nullptr).wrong) << "one too many";
}

TEST(Judge, LogprobsComeWithTheirTokensAndAreEqual) {
  Reference alone = Alone();
  alone.choices[0].logprobs.assign(kTokens, -0.5);
  StreamRecord record = Good();
  EXPECT_TRUE(Judge(record, alone, nullptr).wrong) << "none came";
  record.choices[0].answer.logprobs = alone.choices[0].logprobs;
  EXPECT_TRUE(Judge(record, alone, nullptr).good());
  record.choices[0].answer.logprobs[40] -= 0.5 * kNearTieNats;
  EXPECT_TRUE(Judge(record, alone, nullptr).wrong);
  const TieJudge never = [](const auto&...) { return false; };
  EXPECT_TRUE(Judge(record, alone, never).good()) << "its sums may differ";
  record.choices[0].answer.logprobs.pop_back();
  EXPECT_TRUE(Judge(record, alone, never).wrong);
}

TEST(Judge, AGreedyAnswerMayPartAtAConfirmedNearTie) {
  const StreamRecord other = With([](StreamRecord* record) {
    for (int i = 20; i < kTokens; ++i) record->choices[0].answer.tokens[i] += 1000;
    record->choices[0].answer.text = "another text";
  });
  size_t parted = 0;
  int32_t reference_token = 0;
  const TieJudge confirms = [&](const Reference&, const Answer&, size_t at, int32_t token) {
    parted = at;
    reference_token = token;
    return true;
  };
  const Verdict verdict = Judge(other, Alone(), confirms);
  EXPECT_TRUE(verdict.near_tie);
  EXPECT_TRUE(verdict.good());
  EXPECT_EQ(parted, 20U);
  EXPECT_EQ(reference_token, Expected().tokens[20]);
  EXPECT_EQ(RowOf("kill-decode", {other}, {Alone()}, {}, 0.25, confirms).near_ties, 1);
  EXPECT_TRUE(Judge(other, Alone(), nullptr).wrong) << "no difference is allowed";
  const TieJudge denies = [](const auto&...) { return false; };
  EXPECT_TRUE(Judge(other, Alone(), denies).wrong);
  Reference sampled = Alone();
  sampled.greedy = false;
  EXPECT_TRUE(Judge(other, sampled, confirms).wrong) << "only greedy answers may";
  StreamRecord shorter = other;
  shorter.choices[0].answer.tokens.pop_back();
  EXPECT_EQ(Judge(shorter, Alone(), confirms).lost_tokens, 1);
}

// Three tokens with two alternatives each.
std::vector<ForcedToken> Forced() {
  return {{.logprob = -0.1, .top = {{5, -0.1}, {6, -3}}},
          {.logprob = -0.7001, .top = {{8, -0.7}, {9, -0.7001}}},
          {.logprob = -0.2, .top = {{7, -0.2}, {4, -2}}}};
}

TEST(NearTie, BothTokensAndAllThatFollowsAreTheMostLikely) {
  EXPECT_TRUE(IsNearTie(Forced(), 1, 8));
  EXPECT_FALSE(IsNearTie(Forced(), 0, 6)) << "the reference's token was not nearly as likely";
  EXPECT_FALSE(IsNearTie(Forced(), 1, 3)) << "it is not among the likely ones";
  EXPECT_FALSE(IsNearTie(Forced(), 3, 8)) << "no scores";
  std::vector<ForcedToken> later = Forced();
  later[2] = {.logprob = -2, .top = {{7, -0.2}, {4, -2}}};
  EXPECT_FALSE(IsNearTie(later, 1, 8)) << "a later token is not the most likely one";
  std::vector<ForcedToken> parted = Forced();
  parted[1].logprob = -0.7 - 2 * kNearTieNats;
  EXPECT_FALSE(IsNearTie(parted, 1, 8)) << "outside of the margin";
}

TEST(NearTie, ScoresAreReadBehindThePrompt) {
  const auto body = nlohmann::json::parse(ForcingBody("m", {1, 2}, {3}));
  EXPECT_EQ(body["prompt"], (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(body["max_tokens"], 0);
  EXPECT_EQ(body["echo"], true);
  const std::string answer = R"({"choices":[{"logprobs":{
      "token_logprobs":[null,-1.5,-0.5],
      "top_logprobs":[null,{"token_id:2":-1.5},{"token_id:3":-0.5,"token_id:4":-0.75}]}}]})";
  const auto forced = ParseForced(answer, 2);
  ASSERT_TRUE(forced.ok()) << forced.status();
  ASSERT_EQ(forced->size(), 1U);
  EXPECT_EQ(forced->front().logprob, -0.5);
  EXPECT_EQ(forced->front().top, (std::map<int32_t, double>{{3, -0.5}, {4, -0.75}}));
  EXPECT_FALSE(ParseForced(answer, 0).ok()) << "the first token has no score";
  EXPECT_FALSE(ParseForced("{}", 2).ok());
  EXPECT_FALSE(ParseForced("nothing", 2).ok());
}

TEST(LoadMix, HasEachKindByTurnsAndEveryOtherIsGreedy) {
  const auto requests =
      MixedRequests({.requests = 16, .prompt_tokens = 5, .tokens = 100, .seed = 3});
  std::map<std::string, int> kinds;
  for (size_t i = 0; i < requests.size(); ++i) {
    ++kinds[requests[i].kind];
    EXPECT_EQ(requests[i].temperature == 0, i % 2 == 0) << i;
    EXPECT_EQ(requests[i].prompt.size(), 5U);
    EXPECT_GE(requests[i].output_tokens, 100);
    EXPECT_LT(requests[i].output_tokens, 200);
  }
  EXPECT_EQ(kinds.size(), 8U);
  for (const auto& [kind, count] : kinds) EXPECT_EQ(count, 2) << kind;
}

TEST(LoadMix, ShortOnesComeEvenlyInAdditionAndChangeNoOther) {
  const MixOptions longs{.requests = 8, .prompt_tokens = 5, .tokens = 100, .seed = 3};
  const auto without = MixedRequests(longs);
  MixOptions mixed = longs;
  mixed.short_tokens = 9;
  for (const double share : {0.5, 0.2, 0.75}) {
    mixed.short_share = share;
    const auto requests = MixedRequests(mixed);
    const auto all = static_cast<double>(requests.size());
    size_t long_ones = 0, short_ones = 0, greedy = 0;
    for (const StreamRequest& one : requests) {
      if (one.kind == "short") {
        ++short_ones;
        greedy += one.temperature == 0 ? 1 : 0;
        EXPECT_EQ(one.output_tokens, 9);
        EXPECT_EQ(one.prompt.size(), 5U);
        EXPECT_TRUE(one.streamed);
      } else {
        EXPECT_EQ(one.kind, without[long_ones].kind);
        EXPECT_EQ(one.prompt, without[long_ones].prompt);
        EXPECT_EQ(one.output_tokens, without[long_ones].output_tokens);
        ++long_ones;
      }
      EXPECT_NEAR(static_cast<double>(short_ones),
                  static_cast<double>(long_ones) * share / (1 - share), 4);
    }
    EXPECT_EQ(long_ones, 8U);
    EXPECT_NEAR(static_cast<double>(short_ones) / all, share, 0.01);
    EXPECT_EQ(greedy, short_ones / 2);
  }
}

TEST(LoadMix, ABodySaysWhatIsAskedFor) {
  StreamRequest request{.prompt = {3, 4},
                        .message = "",
                        .output_tokens = 9,
                        .temperature = 0.5,
                        .seed = 6,
                        .stop = ""};
  auto body = nlohmann::json::parse(BodyOf("m", request));
  EXPECT_EQ(PathOf(request), "/v1/completions");
  EXPECT_EQ(body["prompt"], (std::vector<int>{3, 4}));
  EXPECT_EQ(body["max_tokens"], 9);
  EXPECT_EQ(body["seed"], 6);
  for (const char* field : {"stream", "return_token_ids", "ignore_eos"})
    EXPECT_EQ(body[field], true) << field;
  for (const char* field : {"n", "logprobs", "stop", "frequency_penalty", "messages"})
    EXPECT_FALSE(body.contains(field)) << field;
  request.message = "hello";
  request.choices = 2;
  request.logprobs = true;
  request.stop = "end";
  request.penalty = 0.5;
  request.streamed = false;
  body = nlohmann::json::parse(BodyOf("m", request));
  EXPECT_EQ(PathOf(request), "/v1/chat/completions");
  EXPECT_EQ(body["messages"][0]["content"], "hello");
  EXPECT_EQ(body["n"], 2);
  EXPECT_EQ(body["logprobs"], true);
  EXPECT_EQ(body["stop"], "end");
  EXPECT_EQ(body["presence_penalty"], 0.5);
  EXPECT_FALSE(body.contains("prompt"));
  EXPECT_FALSE(body.contains("stream"));
}

TEST(LoadMix, AStopStringOccursLateAndNotBefore) {
  EXPECT_EQ(StopIn(std::string(80, 'a') + "the end of a story"), "aathe end of");
  EXPECT_EQ(StopIn(std::string(100, 'a')), "") << "it occurs from the beginning";
  EXPECT_EQ(StopIn("short"), "");
}

TEST(Judge, AnErrorFailsAndWhatCameBeforeMustBeTheBeginning) {
  const auto broken = [](StreamRecord* record) {
    record->choices[0].answer.tokens.resize(10);
    record->choices[0].answer.text.resize(20);
    record->choices[0].token_s.resize(10);
    record->choices[0].finishes = 0;
    record->done = false;
    record->error = "error event";
  };
  const Verdict verdict = Judged(broken);
  EXPECT_TRUE(verdict.failed);
  EXPECT_FALSE(verdict.wrong);
  EXPECT_EQ(verdict.lost_tokens, 0);
  EXPECT_TRUE(Judged([&](StreamRecord* record) {
                broken(record);
                record->choices[0].answer.text[4] = '#';
              }).wrong);
}

TEST(Judge, AnAnswerWithoutEndHangsAndDoesNotFail) {
  const Verdict verdict = Judged([](StreamRecord* record) {
    record->choices[0].answer.tokens.resize(10);
    record->choices[0].answer.text.resize(20);
    record->choices[0].finishes = 0;
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
                                               for (double& at : record->choices[0].token_s) {
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
    for (double& at : record->choices[0].token_s) {
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
  if (token_s > 0) record.choices[0].token_s = {token_s};
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
    return RowOf("kill-decode", records, {Alone()}, {mark}, 0.25, nullptr);
  };
  const Row good = row_of({Good(), Good()});
  EXPECT_TRUE(good.good());
  EXPECT_EQ(good.requests, 2);
  EXPECT_EQ(good.running(), 2);
  EXPECT_EQ(good.faults_that_met_streams(), 1);
  const StreamRecord failed = With([](StreamRecord* record) {
    record->error = "HTTP 503";
    record->message = "no instance";
    record->choices[0].answer = {};
    record->choices[0].token_s.clear();
    record->choices[0].finishes = 0;
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
    return RowOf("kill-router", {record}, {Alone()}, {mark}, 0.25, nullptr).excused == 1;
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
  EXPECT_EQ(record.choices[0].answer.tokens, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(record.choices[0].token_s, (std::vector<double>{1, 1, 2}));
  EXPECT_EQ(record.choices[0].answer.text, "abc");
  EXPECT_EQ(record.choices[0].answer.finish_reason, "length");
  EXPECT_EQ(record.usage_tokens, 3);
}

TEST(StreamReader, ReadsChatsChoicesLogprobsAndTheTokensOfThePrompt) {
  StreamRecord record;
  StreamReader reader(&record);
  reader.OnStatus(200);
  reader.OnBody(
      "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"token_ids\":[5],"
      "\"logprobs\":{\"content\":[{\"logprob\":-0.5}]},\"finish_reason\":\"stop\"}],"
      "\"prompt_token_ids\":[1,2]}\n\n",
      1);
  reader.OnBody(
      "data: {\"choices\":[{\"index\":1,\"text\":\"b\",\"token_ids\":[6],"
      "\"logprobs\":{\"token_logprobs\":[-1.5]},\"finish_reason\":\"stop\"}]}\n\n"
      "data: [DONE]\n\n",
      2);
  reader.OnEnd(3);
  EXPECT_TRUE(record.whole()) << record.error;
  EXPECT_EQ(record.prompt, (std::vector<int32_t>{1, 2}));
  ASSERT_EQ(record.choices.size(), 2U);
  EXPECT_EQ(record.choices[0].answer.text, "a");
  EXPECT_EQ(record.choices[0].answer.logprobs, (std::vector<double>{-0.5}));
  EXPECT_EQ(record.choices[1].answer.tokens, (std::vector<int32_t>{6}));
  EXPECT_EQ(record.choices[1].answer.logprobs, (std::vector<double>{-1.5}));
  EXPECT_EQ(record.choices[1].token_s, (std::vector<double>{2}));
}

TEST(StreamReader, AnAnswerThatIsNotStreamedComesAsAWhole) {
  const auto read = [](const std::string& body) {
    StreamRecord record;
    record.streamed = false;
    record.sent_s = 1;
    StreamReader reader(&record);
    reader.OnStatus(200);
    reader.OnBody(body.substr(0, 20), 2);
    reader.OnBody(body.substr(20), 3);
    EXPECT_TRUE(record.RunsAt(2));
    reader.OnEnd(4);
    EXPECT_FALSE(record.RunsAt(4));
    return record;
  };
  const std::string body = R"({"choices":[{"message":{"content":"ab"},"token_ids":[5,6],)"
                           R"("finish_reason":"length"}],"usage":{"completion_tokens":2}})";
  const StreamRecord record = read(body);
  EXPECT_TRUE(record.whole()) << record.error;
  EXPECT_EQ(record.choices[0].answer.text, "ab");
  EXPECT_EQ(record.usage_tokens, 2);
  EXPECT_EQ(read(body.substr(0, 40)).error, "bad event") << "it broke off";
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
  Row played = RowOf("kill-decode", {Good()}, {Alone()},
                     {{.at_s = 3, .until_s = 3, .what = "kill decode-0"}}, 0.25, nullptr);
  Row skipped;
  skipped.scenario = "stop-decode";
  skipped.skipped = "cannot be";
  const TableHead head{.version = "1",
                       .machine = "m",
                       .cluster = "c",
                       .load = "l",
                       .stall_s = 0.25,
                       .left_out = "Not a, as b."};
  const std::string text = FaultText(head, {played, skipped});
  EXPECT_NE(text.find("stop-decode: skipped: cannot be\n"), std::string::npos) << text;
  const auto json = nlohmann::json::parse(FaultJson(head, {played, skipped}));
  ASSERT_EQ(json["rows"].size(), 2U);
  const auto& row = json["rows"][0];
  EXPECT_EQ(row["scenario"], "kill-decode");
  EXPECT_EQ(row["good"], true);
  for (const char* column : {"failed", "wrong", "near_ties", "lost", "doubled", "hung"}) {
    EXPECT_EQ(row[column], 0) << column;
    EXPECT_EQ(row["kinds"]["greedy"][column], 0) << column;
  }
  EXPECT_EQ(row["kinds"]["greedy"]["requests"], 1);
  EXPECT_EQ(row["faults"][0]["what"], "kill decode-0");
  EXPECT_EQ(json["rows"][1]["skipped"], "cannot be");
  const std::string markdown = FaultMarkdown(head, {played, skipped});
  EXPECT_NE(markdown.find("| kill-decode | 1 | 1 | 0 | 0 | 0 | 0 | 0 | 0 | 0.00 | 0.10 | 0.10 |\n"),
            std::string::npos)
      << markdown;
  EXPECT_NE(text.find("\nNot a, as b.\n"), std::string::npos) << text;
  EXPECT_NE(markdown.find("\nNot a, as b.\n"), std::string::npos) << markdown;
  EXPECT_EQ(json["left_out"], "Not a, as b.");
}

TEST(Scenario, NamesAreDistinctAndTheFirstBreaksNothing) {
  EXPECT_EQ(Scenarios().front().play, Play::kNothing);
  for (const Scenario& one : Scenarios()) {
    EXPECT_EQ(FindScenario(one.name), &one) << one.name;
  }
  EXPECT_EQ(FindScenario("kill-nothing"), nullptr);
}

}  // namespace
}  // namespace skein::services::chaos
