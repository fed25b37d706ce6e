// The recording of live traffic, up to what skeinctl reads of it.
#include "services/router/trace_recorder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <numeric>
#include <set>

#include "services/base/file.h"
#include "services/router/testing/router_fixture.h"
#include "services/skeinctl/bench/dataset.h"
#include "services/skeinctl/planning/trace_file.h"

namespace skein::services::testing {
namespace {

std::string TempPath(const std::string& name) {
  return std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
}

std::vector<int32_t> Tokens(size_t count, int32_t first) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(TraceHashIds, AreEqualAsFarAsThePromptsAre) {
  const TraceKey key = {1, 2, 3};
  std::vector<int32_t> tokens = Tokens(1300, 0);
  const auto ids = TraceHashIds(key, tokens);
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_EQ(std::set<int64_t>(ids.begin(), ids.end()).size(), 3u);
  for (const int64_t id : ids) EXPECT_TRUE(id >= 0 && id < int64_t{1} << 53);
  tokens[600] = 7;  // in the second block: that and all after it differ
  const auto other = TraceHashIds(key, tokens);
  EXPECT_EQ(other[0], ids[0]);
  EXPECT_NE(other[1], ids[1]);
  EXPECT_NE(other[2], ids[2]);
  EXPECT_EQ(TraceHashIds(key, Tokens(512, 0)), std::vector<int64_t>{ids[0]});
  EXPECT_NE(TraceHashIds(key, Tokens(511, 0))[0], ids[0]);
}

// Who knows a prompt cannot find it in a trace without the key.
TEST(TraceHashIds, DependOnTheKey) {
  const auto tokens = Tokens(512, 0);
  EXPECT_NE(TraceHashIds({1}, tokens), TraceHashIds({2}, tokens));
}

scheduler::SpecPtr SpecOf(std::vector<int32_t> prompt) {
  auto spec = std::make_shared<scheduler::RequestSpec>();
  spec->prompt = std::move(prompt);
  return spec;
}

TEST(TraceRecorder, WritesAllBeforeItGoesAndKeepsOlderFiles) {
  const std::string path = TempPath("kept.jsonl");
  ASSERT_TRUE(WriteFile(path, "older").ok());
  std::string made;
  {
    auto recorder = TraceRecorder::Open(path, 1'000'000);
    ASSERT_TRUE(recorder.ok()) << recorder.status();
    made = (*recorder)->path();
    EXPECT_EQ(made, path + ".1");
    for (int i = 0; i < 100; ++i) {
      (*recorder)->Record({1'000'000 + i * 10'000, SpecOf(Tokens(600, i)), i});
    }
  }
  EXPECT_EQ(*ReadFile(path), "older");
  const auto traced = LoadTraceWithBlocks(made);
  ASSERT_TRUE(traced.ok()) << traced.status();
  ASSERT_EQ(traced->size(), 100u);
  EXPECT_NEAR((*traced)[99].request.arrival_s, 0.99, 1e-9);
  EXPECT_EQ((*traced)[99].request.output_tokens, 99);
  struct stat status {};
  ASSERT_EQ(::stat(made.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST(TraceRecorder, NamesAPathThatCannotBeWritten) {
  const auto recorder = TraceRecorder::Open("/nonexistent/trace", 0);
  EXPECT_NE(std::string(recorder.status().message()).find("/nonexistent/trace"), std::string::npos);
}

// A queue that is full drops and counts; what is counted as written is in the file.
TEST(TraceRecorder, DropsAndCountsWhatIsTooMuch) {
  const std::string path = TempPath("full.jsonl");
  constexpr uint64_t kChoices = 500;
  uint64_t dropped = 0;
  {
    auto recorder = TraceRecorder::Open(path, 0, /*queue_max=*/1);
    ASSERT_TRUE(recorder.ok());
    const auto spec = SpecOf(Tokens(200'000, 0));  // the writer is slower than this loop
    for (uint64_t i = 0; i < kChoices; ++i) (*recorder)->Record({0, spec, 1});
    dropped = (*recorder)->dropped();
  }
  EXPECT_GT(dropped, 0u);
  EXPECT_EQ(LoadTraceWithBlocks(path)->size(), kChoices - dropped);
}

class RecordingRouterTest : public RouterTest {};

TEST_F(RecordingRouterTest, WhatWasServedIsReplayed) {
  const std::string path = TempPath("live.jsonl");
  auto recorder = TraceRecorder::Open(path, MonotonicUs());
  ASSERT_TRUE(recorder.ok()) << recorder.status();
  api_options_.trace = recorder->get();
  max_positions_ = 5000;
  StartRouter([](const v1::RequestSpec& spec) {
    return Says(std::string(static_cast<size_t>(spec.max_tokens()), 'x'));
  });
  const std::string shared(1024, 's');
  const auto ask = [&](const std::string& prompt, int max_tokens, int n) {
    Ask("/v1/completions",
        {{"model", "m"}, {"prompt", prompt}, {"max_tokens", max_tokens}, {"n", n}});
  };
  ask(shared + "one", 3, 1);
  ask(shared + "two", 5, 2);
  EXPECT_EQ(Post("/v1/completions", {{"model", "none"}, {"prompt", "p"}}).status, 404);
  recorder->reset();  // no request is under way

  const std::string text = *ReadFile(path);
  EXPECT_EQ(text.find("one"), std::string::npos);
  const auto traced = ParseTraceWithBlocks(text);
  ASSERT_TRUE(traced.ok()) << traced.status();
  ASSERT_EQ(traced->size(), 3u);
  const auto& first = (*traced)[0];
  EXPECT_EQ(first.request.prompt_tokens, 1027);
  EXPECT_EQ(first.request.output_tokens, 3);
  ASSERT_EQ(first.hash_ids.size(), 3u);
  for (const size_t i : {1, 2}) {
    EXPECT_EQ((*traced)[i].request.output_tokens, 5);
    EXPECT_EQ((*traced)[i].hash_ids[0], first.hash_ids[0]);
    EXPECT_EQ((*traced)[i].hash_ids[1], first.hash_ids[1]);
    EXPECT_NE((*traced)[i].hash_ids[2], first.hash_ids[2]);
  }
  EXPECT_EQ((*traced)[1].hash_ids, (*traced)[2].hash_ids);

  // skeinctl bench makes prompts of them that share what these shared.
  const auto load = bench::TraceRequests(text, kTraceBlockTokens, bench::PromptForm::kTokens, 1);
  ASSERT_TRUE(load.ok()) << load.status();
  const auto& a = std::get<std::vector<int32_t>>((*load)[0].prompt);
  const auto& b = std::get<std::vector<int32_t>>((*load)[1].prompt);
  EXPECT_EQ(a.size(), 1027u);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 1024, b.begin()));
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace skein::services::testing
