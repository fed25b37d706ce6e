#include "services/skeinctl/planning/trace_file.h"

#include <cstdlib>
#include <string>

#include "gtest/gtest.h"
#include "scheduler/simulator/random.h"

namespace skein::services {
namespace {

using scheduler::SimRequest;

const char kOwn[] =
    "arrival_s,prompt_tokens,output_tokens\n"
    "1.5,100,10\n"
    "2.25,200,0\n";
const char kAzure[] =
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-30 23:59:59.5000000,374,44\r\n"
    "2023-12-01 00:00:01.7500000,396,109";
const char kMooncake[] =
    "{\"timestamp\": 0, \"input_length\": 6758, \"output_length\": 500, \"hash_ids\": [0, 1]}\n"
    "{\"timestamp\": 3500, \"input_length\": 7322, \"output_length\": 490, \"hash_ids\": []}\n";

TEST(TraceFile, ReadsAllThreeFormats) {
  EXPECT_EQ(*ParseTrace(kOwn), (std::vector<SimRequest>{{0, 100, 10}, {0.75, 200, 0}}));
  EXPECT_EQ(*ParseTrace(kAzure), (std::vector<SimRequest>{{0, 374, 44}, {2.25, 396, 109}}));
  EXPECT_EQ(*ParseTrace(kMooncake), (std::vector<SimRequest>{{0, 6758, 500}, {3.5, 7322, 490}}));
}

TEST(TraceFile, KeepsTheBlocksOfMooncakesTrace) {
  const auto traced = ParseTraceWithBlocks(kMooncake);
  ASSERT_TRUE(traced.ok()) << traced.status();
  EXPECT_EQ((*traced)[0].hash_ids, (std::vector<int64_t>{0, 1}));
  EXPECT_TRUE((*traced)[1].hash_ids.empty());
  EXPECT_TRUE((*ParseTraceWithBlocks(kOwn))[0].hash_ids.empty());
  for (const char* ids : {"5", "[1.5]", "[\"1\"]", "[18446744073709551615]", "[null]"}) {
    const auto parsed = ParseTraceWithBlocks(
        std::string(
            "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": ") +
        ids + "}");
    EXPECT_NE(std::string(parsed.status().message()).find("hash_ids"), std::string::npos) << ids;
  }
}

TEST(TraceFile, OrdersTheArrivals) {
  EXPECT_EQ(*ParseTrace("arrival_s,prompt_tokens,output_tokens\n5,1,1\n\n2,2,2\n"),
            (std::vector<SimRequest>{{0, 2, 2}, {3, 1, 1}}));
}

TEST(TraceFile, NamesTheLineAndTheField) {
  const std::string own = "arrival_s,prompt_tokens,output_tokens\n";
  const std::string azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  const std::pair<std::string, const char*> cases[] = {
      {"", "has no requests"},
      {own, "has no requests"},
      {"a,b,c\n1,2,3\n", "unknown trace format"},
      {own + "1,2\n", "line 2: 2 fields"},
      {own + "1,2,3\nnan,2,3\n", "line 3: arrival_s"},
      {own + "-1,2,3\n", "arrival_s: '-1'"},
      {own + "1,0,3\n", "prompt_tokens: '0'"},
      {own + "1,-5,3\n", "prompt_tokens"},
      {own + "1,9999999999999999999,3\n", "prompt_tokens"},
      {own + "1,5,x\n", "output_tokens"},
      {azure + "2023-02-30 00:00:00,1,1\n", "TIMESTAMP"},
      {azure + "2023-11-16 24:00:00,1,1\n", "TIMESTAMP"},
      {azure + "2023-11-16,1,1\n", "TIMESTAMP"},
      {"{\"timestamp\": 0}\n", "line 1: input_length: missing"},
      {"{\"timestamp\": 0, \"input_length\": 1.5, \"output_length\": 1}\n", "input_length"},
      {"{\"timestamp\": \"0\", \"input_length\": 1, \"output_length\": 1}\n", "timestamp"},
      {"{\"timestamp\": 0,\n", "not a JSON object"},
  };
  for (const auto& [text, named] : cases) {
    const auto parsed = ParseTrace(text);
    ASSERT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(std::string(parsed.status().message()).find(named), std::string::npos)
        << parsed.status();
  }
}

// Damaged text gives requests in order or an error; it never ends the process.
TEST(TraceFile, SurvivesDamagedText) {
  scheduler::Random random(7);
  const std::string alphabet = "0123456789,.-:{}\"\n\r eE\\x\xff";
  for (int round = 0; round < 1500; ++round) {
    std::string text = round % 3 == 0 ? kOwn : round % 3 == 1 ? kAzure : kMooncake;
    const size_t damages = 1 + random.Below(4);
    for (size_t i = 0; i < damages; ++i) {
      const size_t at = random.Below(text.size());
      switch (random.Below(3)) {
        case 0:
          text[at] = alphabet[random.Below(alphabet.size())];
          break;
        case 1:
          text.erase(at, 1 + random.Below(5));
          break;
        default:
          text.insert(at, 1, alphabet[random.Below(alphabet.size())]);
          break;
      }
      if (text.empty()) text = "\n";
    }
    const auto parsed = ParseTrace(text);
    if (parsed.ok()) {
      EXPECT_TRUE(CheckWorkload(*parsed).ok()) << text;
    } else {
      EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    }
  }
}

TEST(TraceFile, ReadsTheRecordedTracesAsTheyAre) {
  const char* shared = std::getenv("SKEIN_SHARED");
  if (shared == nullptr || *shared == '\0') GTEST_SKIP() << "needs ../shared";
  const std::string folder = std::string(shared) + "/traces/";
  const auto azure = LoadTrace(folder + "AzureLLMInferenceTrace_conv.csv");
  ASSERT_TRUE(azure.ok()) << azure.status();
  EXPECT_EQ(azure->size(), 19366u);
  const auto mooncake = LoadTrace(folder + "mooncake_conversation_trace.jsonl");
  ASSERT_TRUE(mooncake.ok()) << mooncake.status();
  EXPECT_EQ(mooncake->size(), 12031u);
}

TEST(TraceFile, SaysWhatCannotBeRead) {
  EXPECT_EQ(LoadTrace("/nonexistent/file").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace skein::services
