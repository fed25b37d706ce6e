// What the flags, as they are typed, make of a run.
#include "services/skeinctl/bench/bench_flags.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <variant>

namespace skein::services::bench {
namespace {

absl::StatusOr<BenchPlan> PlanOf(std::vector<const char*> arguments, BenchFlags* flags) {
  FlagSet set;
  flags->Register(&set);
  arguments.insert(arguments.begin(), {"bench", "--url=http://127.0.0.1:8000"});
  absl::Status parsed = set.Parse(static_cast<int>(arguments.size()), arguments.data(), {});
  if (!parsed.ok()) return parsed;
  return MakePlan(*flags);
}

BenchPlan PlanOf(std::vector<const char*> arguments) {
  BenchFlags flags;
  auto plan = PlanOf(std::move(arguments), &flags);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : BenchPlan();
}

struct Spread {
  double mean = 0;
  double deviation = 0;
};
template <class Length>
Spread SpreadOf(const std::vector<LoadRequest>& requests, Length length) {
  double sum = 0, squares = 0;
  for (const LoadRequest& request : requests) {
    const auto tokens = static_cast<double>(length(request));
    sum += tokens;
    squares += tokens * tokens;
  }
  const auto count = static_cast<double>(requests.size());
  return {sum / count, std::sqrt(std::max(0.0, squares / count - sum / count * sum / count))};
}

TEST(BenchFlagsTest, WarmupRequestsAreSentBeforeTheMeasuredOnes) {
  const BenchPlan plan = PlanOf({"--requests=5", "--warmup-requests=3"});
  EXPECT_EQ(plan.warmup.size(), 3u);
  EXPECT_EQ(plan.requests.size(), 5u);
  EXPECT_EQ(plan.description.warmup_requests, 3);
  EXPECT_NE(plan.warmup[0].prompt, plan.requests[0].prompt);
}

TEST(BenchFlagsTest, RandomPromptsAndAnswersHaveTheLengthsAndSpreadsThatWereAskedFor) {
  const BenchPlan plan =
      PlanOf({"--requests=2000", "--input-tokens=100", "--input-tokens-stddev=20",
              "--output-tokens=50", "--output-tokens-stddev=5"});
  const Spread in = SpreadOf(plan.requests, [](const LoadRequest& r) { return r.input_tokens; });
  EXPECT_NEAR(in.mean, 100, 2);
  EXPECT_NEAR(in.deviation, 20, 2);
  const Spread out = SpreadOf(plan.requests, [](const LoadRequest& r) { return r.output_tokens; });
  EXPECT_NEAR(out.mean, 50, 1);
  EXPECT_NEAR(out.deviation, 5, 1);
  for (const LoadRequest& request : PlanOf({"--requests=20", "--input-tokens=7"}).requests) {
    EXPECT_EQ(request.input_tokens, 7) << "no spread unless one is asked for";
    EXPECT_EQ(request.output_tokens, 128);
  }
}

TEST(BenchFlagsTest, TheDurationBoundsTheRunAndDecidesHowManyRequestsAreMade) {
  const BenchPlan open = PlanOf({"--duration-s=3", "--rate=10"});
  EXPECT_EQ(open.options.duration_s, 3);
  EXPECT_GE(open.requests.size(), 60u) << "more than will be due, by chance, in the time";
  EXPECT_LE(open.requests.size(), 100u);
  const BenchPlan closed = PlanOf({"--duration-s=3"});
  EXPECT_EQ(closed.requests.size(), 10'000u);
  EXPECT_EQ(PlanOf({}).requests.size(), 100u);
  EXPECT_EQ(PlanOf({}).options.duration_s, 0);
}

TEST(BenchFlagsTest, ConstantArrivalsHaveEqualGaps) {
  const BenchPlan constant = PlanOf({"--rate=4", "--requests=3", "--arrivals=constant"});
  const std::vector<double>& due_s = constant.options.due_s;
  ASSERT_EQ(due_s.size(), 3u);
  EXPECT_NEAR(due_s[1] - due_s[0], 0.25, 1e-9);
  EXPECT_NEAR(due_s[2] - due_s[1], 0.25, 1e-9);
  EXPECT_EQ(constant.description.arrivals, "constant");
  const BenchPlan poisson = PlanOf({"--rate=4", "--requests=3"});
  EXPECT_NE(poisson.options.due_s[1] - poisson.options.due_s[0],
            poisson.options.due_s[2] - poisson.options.due_s[1]);
  EXPECT_EQ(poisson.description.arrivals, "poisson");
}

TEST(BenchFlagsTest, AChatHasWordsAndACompletionTokens) {
  const BenchPlan chat = PlanOf({"--endpoint=chat", "--requests=1"});
  EXPECT_EQ(chat.target.endpoint, Endpoint::kChat);
  EXPECT_TRUE(std::holds_alternative<std::string>(chat.requests[0].prompt));
  const BenchPlan completion = PlanOf({"--requests=1"});
  EXPECT_EQ(completion.target.endpoint, Endpoint::kCompletions);
  EXPECT_FALSE(std::holds_alternative<std::string>(completion.requests[0].prompt));
}

TEST(BenchFlagsTest, StreamingAndFullLengthCanBeTurnedOff) {
  const BenchPlan plain = PlanOf({"--streaming=false", "--ignore-eos=false"});
  EXPECT_FALSE(plain.target.streaming);
  EXPECT_FALSE(plain.description.streaming);
  EXPECT_FALSE(plain.target.ignore_eos);
  EXPECT_TRUE(PlanOf({}).target.streaming);
  EXPECT_TRUE(PlanOf({}).target.ignore_eos);
}

TEST(BenchFlagsTest, TheKeyOfTheFlagIsSent) {
  EXPECT_EQ(PlanOf({"--api-key=sk-1"}).target.api_key, "sk-1");
}

TEST(BenchFlagsTest, GoodputHasLimitsThatTheRunMeasures) {
  const BenchPlan plan = PlanOf({"--goodput=time_to_first_token:2000 request_latency:9000"});
  ASSERT_EQ(plan.description.objectives.size(), 2u);
  EXPECT_EQ(plan.description.objectives[0].metric, "time_to_first_token");
  EXPECT_EQ(plan.description.objectives[1].metric, "request_latency");
  BenchFlags flags;
  EXPECT_NE(PlanOf({"--goodput=time_to_first_token:2000", "--streaming=false"}, &flags)
                .status()
                .message()
                .find("measured only with --streaming"),
            std::string::npos);
}

TEST(BenchFlagsTest, ARequestHasTheTimeLimitThatWasAskedFor) {
  EXPECT_EQ(PlanOf({"--request-timeout-s=1.5"}).options.timeout, std::chrono::milliseconds(1500));
  EXPECT_EQ(PlanOf({}).options.timeout, std::chrono::minutes(10));
}

TEST(BenchFlagsTest, AShareGptFileGivesItsFirstQuestionsAndIsRepeated) {
  const std::string path = ::testing::TempDir() + "/sharegpt.json";
  std::ofstream(path) << R"([
    {"conversations": [{"from": "human", "value": "Who?"}, {"from": "gpt", "value": "It is I."}]},
    {"conversations": [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "Because."}]}])";
  const std::string flag = "--sharegpt=" + path;
  const BenchPlan plan = PlanOf({flag.c_str(), "--requests=3"});
  ASSERT_EQ(plan.requests.size(), 3u);
  const auto prompt = [&plan](size_t i) { return std::get<std::string>(plan.requests[i].prompt); };
  EXPECT_EQ(prompt(0), "Who?");
  EXPECT_EQ(prompt(1), "Why?");
  EXPECT_EQ(prompt(2), "Who?");
  EXPECT_GT(plan.requests[0].output_tokens, 0);
  EXPECT_EQ(plan.description.data, "ShareGPT " + path);
  EXPECT_EQ(PlanOf({flag.c_str()}).requests.size(), 2u) << "all of the file";
  const BenchPlan warm = PlanOf({flag.c_str(), "--warmup-requests=1"});
  EXPECT_EQ(warm.warmup.size(), 1u);
  EXPECT_EQ(warm.requests.size(), 1u) << "the rest of the file";
}

TEST(BenchFlagsTest, TheFilesOfResultsAreNamed) {
  BenchFlags flags;
  ASSERT_TRUE(PlanOf({"--out=a.json", "--records-out=b.jsonl"}, &flags).ok());
  EXPECT_EQ(flags.out, "a.json");
  EXPECT_EQ(flags.records_out, "b.jsonl");
}

TEST(BenchFlagsTest, AValueOutOfRangeIsRefusedByName) {
  for (const char* const wrong :
       {"--input-tokens-stddev=-1", "--output-tokens-stddev=x", "--request-timeout-s=0",
        "--duration-s=-1", "--warmup-requests=-1", "--sharegpt=/nonexistent", "--arrivals=x",
        "--endpoint=x", "--goodput=x"}) {
    BenchFlags flags;
    const absl::Status status = PlanOf({wrong}, &flags).status();
    const std::string name(wrong, std::string(wrong).find('='));
    EXPECT_NE(status.message().find(name), std::string::npos) << wrong << ": " << status;
  }
}

}  // namespace
}  // namespace skein::services::bench
