#include "engine/model/testing/parity_text.h"

#include <fstream>

#include "engine/base/check.h"
#include "engine/model/testing/sequence_runner.h"
#include "engine/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"

namespace skein::engine {

std::vector<int32_t> EvalText(const std::string& model_dir, size_t count) {
  std::ifstream file(model_dir + "/eval_sample.json");
  SKEIN_CHECK_MSG(file.good(), model_dir.c_str());
  const nlohmann::json sample = nlohmann::json::parse(file);
  const auto tokenizer = Tokenizer::Load(model_dir);
  SKEIN_CHECK_MSG(tokenizer.ok(), model_dir.c_str());
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

double ParityNll(Engine& engine, const std::vector<int32_t>& text,
                 std::vector<double>* by_sequence) {
  const auto piece = [&](size_t begin, size_t end) {
    return std::vector<int32_t>(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                text.begin() + static_cast<std::ptrdiff_t>(end));
  };
  std::vector<NllRun> runs = {{.ids = piece(0, 1201)},
                              {.ids = piece(1201, 1812), .chunk_tokens = 97},
                              {.ids = piece(1812, 2154), .chunk_tokens = 53},
                              {.ids = piece(2154, 2173), .chunk_tokens = 1, .first_step = 1}};
  std::vector<NllRun*> together;
  for (NllRun& run : runs) together.push_back(&run);
  ScoreTogether(engine, together);
  double sum = 0.0, scored = 0.0;
  by_sequence->clear();
  for (const NllRun& run : runs) {
    const auto tokens = static_cast<double>(run.ids.size() - 1);
    sum += run.nll * tokens;
    scored += tokens;
    by_sequence->push_back(run.nll);
  }
  return sum / scored;
}

}  // namespace skein::engine
