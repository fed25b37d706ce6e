#include "engine/model/testing/parity_text.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "engine/base/check.h"
#include "engine/model/testing/sequence_runner.h"
#include "engine/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"

namespace skein::engine {
namespace {

std::vector<int32_t> Piece(const std::vector<int32_t>& text, size_t begin, size_t end) {
  SKEIN_CHECK(end <= text.size());
  return std::vector<int32_t>(text.begin() + static_cast<std::ptrdiff_t>(begin),
                              text.begin() + static_cast<std::ptrdiff_t>(end));
}

}  // namespace

std::vector<int32_t> EvalText(size_t count) {
  std::ifstream file(std::string(kParityModelDir) + "/eval_sample.json");
  SKEIN_CHECK_MSG(file.good(), "the model must be in the test's data");
  const nlohmann::json sample = nlohmann::json::parse(file);
  const auto tokenizer = Tokenizer::Load(kParityModelDir);
  SKEIN_CHECK(tokenizer.ok());
  std::vector<int32_t> ids;
  for (const nlohmann::json& item : sample.at("items")) {
    for (const nlohmann::json& message : item.at("messages")) {
      const std::string text = message.at("content");
      const std::vector<int32_t> more = (*tokenizer)->Encode(text, {.add_special_tokens = false});
      ids.insert(ids.end(), more.begin(), more.end());
    }
    if (ids.size() >= count) break;
  }
  SKEIN_CHECK_MSG(ids.size() >= count, "the sample has less text");
  ids.resize(count);
  return ids;
}

ModelEngineOptions ParityPool() {
  ModelEngineOptions options;
  options.num_blocks = 160;
  return options;
}

std::vector<double> ParityScores(Engine& engine, const std::vector<int32_t>& text) {
  std::vector<NllRun> runs = {
      {.ids = Piece(text, 0, 1201)},
      {.ids = Piece(text, 1201, 1812), .chunk_tokens = 97},
      {.ids = Piece(text, 1812, 2154), .chunk_tokens = 53},
      {.ids = Piece(text, 2154, kParityTextTokens), .chunk_tokens = 1, .first_step = 1}};
  std::vector<NllRun*> together;
  for (NllRun& run : runs) together.push_back(&run);
  ScoreTogether(engine, together);
  double sum = 0.0, scored = 0.0;
  std::vector<double> scores = {0.0};
  for (const NllRun& run : runs) {
    const auto tokens = static_cast<double>(run.ids.size() - 1);
    sum += run.nll * tokens;
    scored += tokens;
    scores.push_back(run.nll);
  }
  scores[0] = sum / scored;
  return scores;
}

double LargestDifference(const std::vector<double>& actual, const std::vector<double>& expected) {
  SKEIN_CHECK(actual.size() == expected.size());
  double largest = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(actual[i] / expected[i] - 1.0));
  }
  return largest;
}

std::vector<int32_t> ParityGreedy(Engine& engine, const std::vector<int32_t>& text) {
  GreedyRun first{.prompt = Piece(text, 0, 61), .tokens_wanted = 20};
  GreedyRun second{
      .prompt = Piece(text, 61, 390), .tokens_wanted = 12, .chunk_tokens = 47, .first_step = 2};
  RunTogether(engine, {&first, &second});
  first.output.insert(first.output.end(), second.output.begin(), second.output.end());
  return first.output;
}

}  // namespace skein::engine
