// The parts of the load generator that do no I/O.
#include <gtest/gtest.h>

#include <numeric>

#include "nlohmann/json.hpp"
#include "services/skeinctl/bench/answer_reader.h"
#include "services/skeinctl/bench/dataset.h"
#include "services/skeinctl/bench/report.h"
#include "services/skeinctl/bench/schedule.h"
#include "services/skeinctl/bench/statistics.h"
#include "services/skeinctl/bench/target.h"

namespace skein::services::bench {
namespace {

using Json = nlohmann::json;

TEST(Schedule, PoissonHasTheRateAndItsSpread) {
  constexpr int64_t kCount = 20'000;
  const std::vector<double> times = ArrivalTimes(Arrivals::kPoisson, 5, kCount, 3);
  EXPECT_EQ(times.front(), 0);
  EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
  EXPECT_NEAR(times.back(), kCount / 5.0, 0.03 * kCount / 5.0);
  int64_t short_gaps = 0;  // below the mean: 1 - 1/e of them
  for (size_t i = 1; i < times.size(); ++i) short_gaps += times[i] - times[i - 1] < 0.2 ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(short_gaps) / kCount, 0.632, 0.02);
}

TEST(Schedule, SeedsAndRatesAreIndependent) {
  const auto slow = ArrivalTimes(Arrivals::kPoisson, 1, 50, 9);
  const auto fast = ArrivalTimes(Arrivals::kPoisson, 4, 50, 9);
  for (size_t i = 0; i < slow.size(); ++i) EXPECT_NEAR(slow[i], 4 * fast[i], 1e-9);
  EXPECT_NE(slow, ArrivalTimes(Arrivals::kPoisson, 1, 50, 10));
  EXPECT_EQ(ArrivalTimes(Arrivals::kConstant, 4, 4, 1), (std::vector<double>{0, .25, .5, .75}));
  EXPECT_EQ(RecordedTimes({10, 12, 20}, 2), (std::vector<double>{0, 1, 5}));
}

TEST(Distribution, InterpolatesPercentiles) {
  const Distribution d({4, 1, 3, 2});
  EXPECT_EQ(d.Percentile(0), 1);
  EXPECT_EQ(d.Percentile(50), 2.5);
  EXPECT_NEAR(d.Percentile(90), 3.7, 1e-12);
  EXPECT_EQ(d.Percentile(100), 4);
  EXPECT_EQ(d.mean(), 2.5);
  EXPECT_NEAR(d.deviation(), 1.2909944487, 1e-9);
  EXPECT_EQ(Distribution({}).Percentile(99), 0);
  EXPECT_EQ(Distribution({7}).Percentile(99), 7);
}

RequestRecord Record(double intended_s, double sent_s, std::vector<double> text_s,
                     int64_t output_tokens) {
  RequestRecord record;
  record.intended_s = intended_s;
  record.sent_s = sent_s;
  record.end_s = text_s.empty() ? sent_s : text_s.back();
  record.text_s = std::move(text_s);
  record.output_tokens = output_tokens;
  record.input_tokens = 10;
  record.status = 200;
  return record;
}

// Waiting in the client before the request is sent counts.
TEST(Statistics, LatencyCountsFromTheIntendedMoment) {
  const RequestTimes times = TimesOf(Record(1, 3, {3.5, 3.6, 4.5}, 3), true);
  EXPECT_NEAR(*times.time_to_first_token_ms, 2500, 1e-9);
  EXPECT_NEAR(times.request_latency_ms, 3500, 1e-9);
  EXPECT_NEAR(*times.inter_token_latency_ms, 500, 1e-9);  // two gaps, without the first token
  EXPECT_NEAR(*times.output_tokens_per_s, 2, 1e-9);
}

TEST(Statistics, TokensOfOneEventShareItsGap) {
  // 9 tokens in 3 events: 8 gaps in the second between the first and the last.
  EXPECT_NEAR(*TimesOf(Record(0, 0, {1, 1.5, 2}, 9), true).inter_token_latency_ms, 125, 1e-9);
  EXPECT_FALSE(TimesOf(Record(0, 0, {1}, 1), true).inter_token_latency_ms.has_value());
  EXPECT_FALSE(TimesOf(Record(0, 0, {1}, 9), false).time_to_first_token_ms.has_value());
}

TEST(Statistics, CountsEveryErrorByKind) {
  std::vector<RequestRecord> records = {Record(0, 0, {1, 2}, 2), Record(1, 1, {}, 0),
                                        Record(2, 2, {}, 0), Record(3, 3, {}, 0)};
  records[1].error = records[3].error = "HTTP 429";
  records[1].message = "full";
  records[1].status = records[3].status = 429;
  records[2].error = "timeout";
  const Statistics s = Summarise(records, true, {});
  EXPECT_EQ(s.completed, 1);
  EXPECT_EQ(s.failed, 3);
  ASSERT_EQ(s.errors.size(), 2u);
  EXPECT_EQ(s.errors[0].kind, "HTTP 429");
  EXPECT_EQ(s.errors[0].count, 2);
  EXPECT_EQ(s.errors[0].message, "full");
  EXPECT_EQ(s.request_latency_ms.count(), 1u);
  EXPECT_EQ(s.duration_s, 3);
  EXPECT_NEAR(s.output_tokens_per_s(), 2 / 3.0, 1e-9);
  EXPECT_FALSE(s.good.has_value());
}

TEST(Goodput, KeepsEveryObjective) {
  const auto objectives = ParseObjectives("time_to_first_token:2000 inter_token_latency:25");
  ASSERT_TRUE(objectives.ok());
  EXPECT_TRUE(IsGood({.time_to_first_token_ms = 2000, .inter_token_latency_ms = 25}, *objectives));
  EXPECT_FALSE(IsGood({.time_to_first_token_ms = 2001, .inter_token_latency_ms = 25}, *objectives));
  EXPECT_FALSE(IsGood({.time_to_first_token_ms = 1, .inter_token_latency_ms = 26}, *objectives));
  EXPECT_TRUE(IsGood({.time_to_first_token_ms = 1}, *objectives));  // one token has no gap
  const auto least = ParseObjectives("output_token_throughput_per_user:10,request_latency:500");
  EXPECT_TRUE(IsGood({.request_latency_ms = 499, .output_tokens_per_s = 11}, *least));
  EXPECT_FALSE(IsGood({.request_latency_ms = 499, .output_tokens_per_s = 9}, *least));
  EXPECT_FALSE(IsGood({.request_latency_ms = 501, .output_tokens_per_s = 11}, *least));
  for (const char* bad : {"ttft:5", "request_latency", "request_latency:0", "request_latency:x",
                          "request_latency:-1", ":5"}) {
    EXPECT_FALSE(ParseObjectives(bad).ok()) << bad;
  }
  // Failed requests are not good; their time counts.
  std::vector<RequestRecord> records = {Record(0, 0, {0.1}, 1), Record(1, 1, {1.9}, 1),
                                        Record(2, 2, {}, 0)};
  records[2].error = "timeout";
  EXPECT_EQ(*Summarise(records, true, *ParseObjectives("request_latency:500")).good, 1);
}

std::vector<std::string> Events(const std::vector<std::string>& pieces) {
  std::vector<std::string> events;
  SseParser parser([&](const std::string& data) { events.push_back(data); });
  for (const std::string& piece : pieces) parser.Feed(piece);
  return events;
}

TEST(SseParser, ReadsEventsHoweverTheyAreCut) {
  const std::string text =
      ": comment\r\nevent: x\r\ndata: {\"a\":1}\r\n\r\ndata:b\ndata: c\n\n\n\rdata\r\rdata: cut";
  const std::vector<std::string> wanted = {"{\"a\":1}", "b\nc", ""};
  EXPECT_EQ(Events({text}), wanted);
  std::vector<std::string> bytes;
  for (const char byte : text) bytes.emplace_back(1, byte);
  EXPECT_EQ(Events(bytes), wanted);
}

std::string Event(const std::string& json) { return "data: " + json + "\n\n"; }

RequestRecord Read(bool streaming, int status, const std::vector<std::string>& pieces) {
  RequestRecord record;
  AnswerReader reader(streaming, &record);
  reader.OnStatus(status);
  double now_s = 1;
  for (const std::string& piece : pieces) reader.OnBody(piece, now_s++);
  reader.OnEnd(now_s);
  return record;
}

TEST(AnswerReader, KeepsWhenTextCameAndWhatTheServerCounted) {
  const RequestRecord record =
      Read(true, 200,
           {Event(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})"),
            Event(R"({"choices":[{"delta":{"content":"a"},"finish_reason":null}]})"),
            Event(R"({"choices":[{"text":"bcd"}]})"),
            Event(R"({"choices":[{"delta":{},"finish_reason":"length"}]})"),
            Event(R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":4}})") +
                Event("[DONE]")});
  EXPECT_TRUE(record.ok()) << record.error << record.message;
  EXPECT_EQ(record.text_s, (std::vector<double>{2, 3}));
  EXPECT_EQ(record.input_tokens, 7);
  EXPECT_EQ(record.output_tokens, 4);
}

TEST(AnswerReader, CountsEventsWithoutUsage) {
  const std::string text = Event(R"({"choices":[{"text":"x"}]})");
  EXPECT_EQ(Read(true, 200, {text, text, Event("[DONE]")}).output_tokens, 2);
}

TEST(AnswerReader, NamesWhatIsWrong) {
  const std::string text = Event(R"({"choices":[{"text":"x"}]})");
  const RequestRecord broken = Read(true, 200, {text, Event(R"({"error":{"message":"died"}})")});
  EXPECT_EQ(broken.error, "error event");
  EXPECT_EQ(broken.message, "died");
  EXPECT_EQ(Read(true, 200, {text}).error, "stream ended early");
  EXPECT_EQ(Read(true, 200, {Event("[DONE]")}).error, "no text");
  EXPECT_EQ(Read(true, 200, {Event("{nonsense")}).error, "bad event");
  const RequestRecord refused = Read(true, 429, {R"({"error":{"message":"full"}})"});
  EXPECT_EQ(refused.error, "HTTP 429");
  EXPECT_EQ(refused.message, "full");
  EXPECT_EQ(Read(false, 200, {"[]"}).error, "bad answer");
  EXPECT_EQ(Read(false, 500, {"oops"}).message, "oops");
}

TEST(AnswerReader, ReadsAWholeAnswer) {
  const RequestRecord record = Read(false, 200,
                                    {R"({"choices":[{"message":{"content":"hi"}}],)",
                                     R"("usage":{"prompt_tokens":3,"completion_tokens":2}})"});
  EXPECT_TRUE(record.ok()) << record.error;
  EXPECT_EQ(record.text_s, (std::vector<double>{3}));
  EXPECT_EQ(record.output_tokens, 2);
}

const std::vector<int32_t>& Ids(const LoadRequest& request) {
  return std::get<std::vector<int32_t>>(request.prompt);
}

TEST(Dataset, RandomPromptsHaveTheirLengthsAndNothingInCommon) {
  const auto requests = RandomRequests(50, {40, 0}, {8, 3}, PromptForm::kTokens, 1);
  EXPECT_EQ(requests.size(), 50u);
  std::set<std::vector<int32_t>> different;
  bool outputs_differ = false;
  for (const LoadRequest& request : requests) {
    EXPECT_EQ(Ids(request).size(), 40u);
    EXPECT_GE(request.output_tokens, 1);
    outputs_differ |= request.output_tokens != requests[0].output_tokens;
    for (const int32_t id : Ids(request)) EXPECT_TRUE(id >= 3 && id < 256);
    different.insert(Ids(request));
  }
  EXPECT_EQ(different.size(), 50u);
  EXPECT_TRUE(outputs_differ);
  const auto words = RandomRequests(1, {3, 0}, {1, 0}, PromptForm::kWords, 1);
  const std::string text = std::get<std::string>(words[0].prompt);
  EXPECT_EQ(std::count(text.begin(), text.end(), ' '), 2) << text;
}

TEST(Dataset, EqualHashIdsGiveEqualBlocks) {
  const std::string trace =
      R"({"timestamp": 0, "input_length": 10, "output_length": 5, "hash_ids": [7, 8, 9]})"
      "\n"
      R"({"timestamp": 500, "input_length": 9, "output_length": 6, "hash_ids": [7, 8, 4]})"
      "\n"
      R"({"timestamp": 900, "input_length": 6, "output_length": 1})"
      "\n";
  for (const PromptForm form : {PromptForm::kTokens, PromptForm::kWords}) {
    const auto requests = TraceRequests(trace, 4, form, 1);
    ASSERT_TRUE(requests.ok()) << requests.status();
    ASSERT_EQ(requests->size(), 3u);
    EXPECT_EQ(*(*requests)[1].at_s, 0.5);
    EXPECT_EQ((*requests)[1].output_tokens, 6);
    if (form == PromptForm::kWords) continue;
    const auto& a = Ids((*requests)[0]);
    const auto& b = Ids((*requests)[1]);
    EXPECT_EQ(a.size(), 10u);
    EXPECT_EQ(b.size(), 9u);
    EXPECT_TRUE(std::equal(a.begin(), a.begin() + 8, b.begin()));
    EXPECT_NE(a[8], b[8]);
    EXPECT_EQ(Ids((*requests)[2]).size(), 6u);
    EXPECT_FALSE(std::equal(a.begin(), a.begin() + 4, Ids((*requests)[2]).begin()));
  }
  EXPECT_FALSE(TraceRequests(trace, 2048, PromptForm::kTokens, 1).ok());  // too many ids
}

TEST(Dataset, ShareGptTakesTheFirstQuestionAndAnswer) {
  const auto requests = ShareGptRequests(
      R"([{"id":"1","conversations":[{"from":"system","value":"s"},{"from":"human","value":"why?"},
           {"from":"gpt","value":"because it is so"},{"from":"human","value":"no"}]},
          {"id":"2","conversations":[{"from":"gpt","value":"x"}]}, 7])",
      0);
  ASSERT_TRUE(requests.ok()) << requests.status();
  ASSERT_EQ(requests->size(), 1u);
  EXPECT_EQ(std::get<std::string>((*requests)[0].prompt), "why?");
  EXPECT_EQ((*requests)[0].output_tokens, 4);
  for (const char* bad : {"{}", "[]", "nonsense", "[{\"conversations\": 5}]"}) {
    EXPECT_FALSE(ShareGptRequests(bad, 0).ok()) << bad;
  }
}

TEST(Dataset, PromptLinesAreTextOrJson) {
  const auto requests = PromptLines(
      "one\r\n\n{\"prompt\": \"two\", \"output_length\": 3}\n{\"text_input\": \"three\"}\n", 9);
  ASSERT_TRUE(requests.ok()) << requests.status();
  ASSERT_EQ(requests->size(), 3u);
  EXPECT_EQ(std::get<std::string>((*requests)[0].prompt), "one");
  EXPECT_EQ((*requests)[1].output_tokens, 3);
  EXPECT_EQ((*requests)[2].output_tokens, 9);
  EXPECT_NE(std::string(PromptLines("a\n{\"x\":1}", 1).status().message()).find("line 2"),
            std::string::npos);
  EXPECT_FALSE(PromptLines("\n", 1).ok());
}

TEST(Dataset, RepeatsAScheduleAfterItself) {
  LoadRequest a, b;
  a.at_s = 0;
  b.at_s = 4;
  const auto all = Repeated({a, b}, 5);
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(*all[2].at_s, 8);
  EXPECT_EQ(*all[4].at_s, 16);
}

TEST(Url, IsReadOrNamed) {
  EXPECT_EQ(ParseUrl("http://a.example:8000/v1/")->host, "a.example");
  EXPECT_EQ(ParseUrl("http://a:8000/v1/")->path, "");
  EXPECT_EQ(ParseUrl("a:8000")->port, "8000");
  EXPECT_EQ(ParseUrl("a")->port, "80");
  EXPECT_EQ(ParseUrl("http://[::1]:81/x")->host, "::1");
  EXPECT_EQ(ParseUrl("http://[::1]:81/x")->path, "/x");
  EXPECT_FALSE(ParseUrl("http://a:8000", /*https=*/true)->https);
  EXPECT_TRUE(ParseUrl("https://a:8443/x")->https);
  EXPECT_EQ(ParseUrl("https://a")->port, "443");
  EXPECT_FALSE(ParseUrl("a:8000")->https);
  EXPECT_TRUE(ParseUrl("a:8000", /*https=*/true)->https);
  for (const char* bad :
       {"https://", "http://", "ftp://a", "http://a:0", "http://a:x", "http://[::1"}) {
    EXPECT_FALSE(ParseUrl(bad).ok()) << bad;
  }
}

TEST(Target, AsksAsOpenAiDoes) {
  Target target{.url = {.host = "h", .port = "80", .path = "/p"}, .model = "m", .api_key = "k"};
  LoadRequest request;
  request.prompt = std::vector<int32_t>{5, 6};
  request.output_tokens = 9;
  const HttpCall call = CallFor(target, request);
  EXPECT_EQ(call.target, "/p/v1/completions");
  EXPECT_EQ(Json::parse(call.body),
            Json::parse(R"({"model":"m","prompt":[5,6],"max_tokens":9,"ignore_eos":true,
                            "stream":true,"stream_options":{"include_usage":true}})"));
  EXPECT_NE(std::find(call.headers.begin(), call.headers.end(),
                      std::pair<std::string, std::string>("Authorization", "Bearer k")),
            call.headers.end());
  target.endpoint = Endpoint::kChat;
  target.streaming = target.ignore_eos = false;
  request.prompt = "hi";
  const HttpCall chat = CallFor(target, request);
  EXPECT_EQ(chat.target, "/p/v1/chat/completions");
  EXPECT_EQ(Json::parse(chat.body),
            Json::parse(R"({"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":9,
                            "stream":false})"));
  EXPECT_EQ(*OnlyModel(R"({"data":[{"id":"x"}]})"), "x");
  for (const char* bad : {"", "{}", R"({"data":[]})", R"({"data":[{"id":"x"},{"id":"y"}]})"}) {
    EXPECT_FALSE(OnlyModel(bad).ok()) << bad;
  }
}

TEST(Report, HasAiperfsShape) {
  RunDescription run{.url = "http://h",
                     .model = "m",
                     .endpoint = "chat",
                     .load = "l",
                     .request_rate = 4,
                     .arrivals = "poisson",
                     .requests = 2,
                     .objectives = {{"request_latency", 500}}};
  std::vector<RequestRecord> records = {Record(0, 0, {0.25, 0.5}, 2), Record(1, 1, {}, 0)};
  records[1].error = "HTTP 429";
  records[1].status = 429;
  records[1].message = "full";
  const Statistics statistics = Summarise(records, true, run.objectives);
  const Json json = Json::parse(AiperfJson(run, statistics));
  for (const char* metric : {"time_to_first_token", "inter_token_latency", "request_latency",
                             "output_sequence_length", "input_sequence_length"}) {
    for (const char* field : {"unit", "avg", "min", "max", "std", "count", "sum", "p1", "p5", "p10",
                              "p25", "p50", "p75", "p90", "p95", "p99"}) {
      EXPECT_TRUE(json.at(metric).contains(field)) << metric << field;
    }
  }
  EXPECT_EQ(json["time_to_first_token"]["p50"], 250);
  EXPECT_EQ(json["time_to_first_token"]["unit"], "ms");
  for (const char* metric :
       {"request_throughput", "output_token_throughput", "request_count", "goodput",
        "good_request_count", "error_request_count", "benchmark_duration"}) {
    EXPECT_TRUE(json.at(metric).contains("avg")) << metric;
    EXPECT_EQ(json.at(metric).size(), 2u) << metric;
  }
  EXPECT_EQ(json["good_request_count"]["avg"], 1);
  EXPECT_EQ(json["error_summary"][0]["count"], 1);
  EXPECT_EQ(json["error_summary"][0]["error_details"]["code"], 429);
  EXPECT_EQ(json["input_config"]["endpoint"]["model_names"][0], "m");
  EXPECT_EQ(json["was_cancelled"], false);

  const std::string table = Table(run, statistics);
  EXPECT_NE(table.find("1 requests completed, 1 failed"), std::string::npos) << table;
  EXPECT_NE(table.find("HTTP 429"), std::string::npos) << table;

  const std::string lines = RecordLines(run, records);
  const Json first = Json::parse(lines.substr(0, lines.find('\n')));
  EXPECT_EQ(first["metrics"]["time_to_first_token"]["value"], 250);
  EXPECT_TRUE(first["error"].is_null());
  const Json second = Json::parse(lines.substr(lines.find('\n') + 1));
  EXPECT_EQ(second["error"]["code"], 429);
}

}  // namespace
}  // namespace skein::services::bench
