#include "engine/model/testing/parity_text.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <utility>

#include "engine/chat_template/chat_template.h"
#include "engine/model/testing/sequence_runner.h"
#include "engine/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

std::vector<int32_t> Piece(const std::vector<int32_t>& text, size_t begin, size_t end) {
  SKEIN_CHECK(end <= text.size());
  return std::vector<int32_t>(text.begin() + static_cast<std::ptrdiff_t>(begin),
                              text.begin() + static_cast<std::ptrdiff_t>(end));
}

// Questions that ParityGreedy asks: the first ones of at most so many tokens.
constexpr size_t kQuestions = 3;
constexpr size_t kQuestionTokensMax = 400;

std::vector<EvalItem> Questions() {
  std::vector<EvalItem> questions;
  for (EvalItem& item : EvalItems()) {
    if (item.prompt.size() > kQuestionTokensMax || questions.size() == kQuestions) continue;
    questions.push_back(std::move(item));
  }
  SKEIN_CHECK(questions.size() == kQuestions);
  return questions;
}

}  // namespace

std::vector<EvalItem> EvalItems() {
  std::ifstream file(std::string(kParityModelDir) + "/eval_sample.json");
  SKEIN_CHECK_MSG(file.good(), "the model must be in the test's data");
  const auto sample = nlohmann::ordered_json::parse(file);
  const auto tokenizer = Tokenizer::Load(kParityModelDir);
  SKEIN_CHECK(tokenizer.ok());
  const auto chat = ChatTemplate::Parse(*(*tokenizer)->chat_template());
  SKEIN_CHECK(chat.ok());
  std::vector<EvalItem> items;
  for (const auto& item : sample.at("items")) {
    const auto text = chat->Render({{"messages", item.at("messages")},
                                    {"add_generation_prompt", true},
                                    {"bos_token", *(*tokenizer)->bos_token()}});
    SKEIN_CHECK(text.ok());
    items.push_back(
        {(*tokenizer)->Encode(*text, {.add_special_tokens = false}),
         (*tokenizer)
             ->Encode(item.at("expected").get<std::string>(), {.add_special_tokens = false})});
  }
  return items;
}

std::vector<int32_t> EvalText(size_t count) {
  std::vector<int32_t> ids;
  for (const EvalItem& item : EvalItems()) {
    ids.insert(ids.end(), item.prompt.begin(), item.prompt.end());
    ids.insert(ids.end(), item.answer.begin(), item.answer.end());
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
      {.ids = Piece(text, 1201, 1812), .slice_tokens = 97},
      {.ids = Piece(text, 1812, 2154), .slice_tokens = 53},
      {.ids = Piece(text, 2154, kParityTextTokens), .slice_tokens = 1, .first_step = 1}};
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

std::vector<int32_t> ParityGreedy(Engine& engine) {
  std::vector<GreedyRun> runs;
  for (const EvalItem& item : Questions()) {
    runs.push_back({.prompt = item.prompt, .tokens_wanted = static_cast<int>(item.answer.size())});
  }
  runs[1].slice_tokens = 47;
  runs[1].first_step = 1;
  runs[2].slice_tokens = 101;
  runs[2].first_step = 2;
  RunTogether(engine, {&runs[0], &runs[1], &runs[2]});
  std::vector<int32_t> said;
  for (const GreedyRun& run : runs) said.insert(said.end(), run.output.begin(), run.output.end());
  return said;
}

std::vector<int32_t> ParityAnswers() {
  std::vector<int32_t> answers;
  for (const EvalItem& item : Questions()) {
    answers.insert(answers.end(), item.answer.begin(), item.answer.end());
  }
  return answers;
}

}  // namespace skein::engine
