#include "engine/sampling/logit_edits.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace skein::engine {
namespace {

constexpr int kVocab = 40;

// The definition, in the order in which logit_edits.h lists the edits.
std::vector<float> Defined(const SamplingParams& params, uint64_t token_index,
                           const std::vector<int32_t>& prompt, const std::vector<int32_t>& output,
                           std::vector<float> logits) {
  std::set<int32_t> seen(prompt.begin(), prompt.end());
  seen.insert(output.begin(), output.end());
  for (const int32_t id : seen) {
    float& logit = logits[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
  }
  std::map<int32_t, int> counts;
  for (const int32_t id : output) ++counts[id];
  for (const auto& [id, count] : counts) {
    logits[static_cast<size_t>(id)] -= params.frequency_penalty * static_cast<float>(count);
    logits[static_cast<size_t>(id)] -= params.presence_penalty;
  }
  for (const auto& [id, bias] : params.logit_bias) logits[static_cast<size_t>(id)] += bias;
  if (token_index < static_cast<uint64_t>(params.min_tokens)) {
    for (const int32_t id : params.suppressed_until_min_tokens) {
      logits[static_cast<size_t>(id)] = -std::numeric_limits<float>::infinity();
    }
  }
  return logits;
}

class LogitEditorTest : public ::testing::Test {
 protected:
  float Draw() { return std::uniform_real_distribution<float>(-2, 2)(random_); }
  bool Coin() { return random_() % 2 == 0; }
  std::vector<int32_t> Ids(size_t count) {
    std::vector<int32_t> ids(count);
    for (int32_t& id : ids) id = static_cast<int32_t>(random_() % kVocab);
    return ids;
  }
  SamplingParams Params() {
    SamplingParams params;
    if (Coin()) params.repetition_penalty = 1.5f + Draw() / 2;
    if (Coin()) params.presence_penalty = Draw();
    if (Coin()) params.frequency_penalty = Draw();
    if (Coin()) params.logit_bias = {{3, Draw()}, {7, Draw()}, {3, Draw()}};
    if (Coin()) params.suppressed_until_min_tokens = Ids(3);
    params.min_tokens = static_cast<int>(random_() % 8);
    return params;
  }

  std::mt19937 random_{17};
};

void ExpectSameBits(const std::vector<float>& actual, const std::vector<float>& expected) {
  EXPECT_EQ(std::memcmp(actual.data(), expected.data(), expected.size() * sizeof(float)), 0);
}

// What is kept with a sequence is enough: its prompt and output need not even be there.
TEST_F(LogitEditorTest, KeptOrWalkedTheBitsAreThoseOfTheDefinition) {
  LogitEditor editor(kVocab);
  for (int round = 0; round < 300; ++round) {
    const SamplingParams params = Params();
    const std::vector<int32_t> prompt = Ids(random_() % 60);
    SeenIds seen(params, prompt);
    std::vector<int32_t> output;
    for (uint64_t index = 0; index < 12; ++index) {
      std::vector<float> logits(kVocab);
      for (float& logit : logits) logit = 4 * Draw();
      const std::vector<float> expected = Defined(params, index, prompt, output, logits);
      std::vector<float> walked = logits, kept = logits;
      editor.Apply(params, index, prompt, output, /*seen=*/nullptr, walked);
      editor.Apply(params, index, {}, {}, &seen, kept);
      ExpectSameBits(walked, expected);
      ExpectSameBits(kept, expected);
      EXPECT_TRUE(LogitEditor::Edits(params, index) || expected == logits);
      output.push_back(Ids(1)[0]);
      seen.Add(output.back());
    }
  }
}

TEST(SeenIds, AreKeptAsFarAsAPenaltyFallsOnThem) {
  const std::vector<int32_t> prompt = {5, 9, 5};
  const auto kept = [&](const SamplingParams& params) {
    SeenIds seen(params, prompt);
    for (const int32_t id : {2, 9, 2}) seen.Add(id);
    return std::vector<SeenId>(seen.ids().begin(), seen.ids().end());
  };
  EXPECT_EQ(kept({.repetition_penalty = 1.1f}), (std::vector<SeenId>{{5, 0}, {9, 1}, {2, 2}}));
  EXPECT_EQ(kept({.presence_penalty = 0.5f}), (std::vector<SeenId>{{2, 2}, {9, 1}}));
  EXPECT_EQ(kept({.frequency_penalty = 0.5f}), (std::vector<SeenId>{{2, 2}, {9, 1}}));
  EXPECT_TRUE(kept({.logit_bias = {{5, 1.0f}}}).empty());
}

}  // namespace
}  // namespace skein::engine
