#include "services/router/testing/byte_model.h"

#include <utility>

#include "nlohmann/json.hpp"

namespace skein::services::testing {
namespace {

using Json = nlohmann::json;

constexpr char kTemplate[] =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";

// GPT-2's alphabet: printable bytes stand for themselves, the others for U+0100 and up.
std::string LetterOf(int byte, int* next) {
  const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  const int c = itself ? byte : 256 + (*next)++;
  if (c < 128) return std::string(1, static_cast<char>(c));
  return {static_cast<char>(0xC0 | (c >> 6)), static_cast<char>(0x80 | (c & 63))};
}

Json AddedToken(int32_t id, const char* text) {
  return {{"id", id},        {"content", text}, {"special", true},    {"single_word", false},
          {"lstrip", false}, {"rstrip", false}, {"normalized", false}};
}

std::string TokenizerJson() {
  Json vocab = Json::object();
  int next = 0;
  for (int byte = 0; byte < 256; ++byte) vocab[LetterOf(byte, &next)] = byte;
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"use_regex", false},
                           {"trim_offsets", true}};
  return Json{{"added_tokens", {AddedToken(kBos, "<s>"), AddedToken(kEos, "</s>")}},
              {"normalizer", nullptr},
              {"pre_tokenizer", byte_level},
              {"post_processor", nullptr},
              {"decoder", byte_level},
              {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}}
      .dump();
}

}  // namespace

std::unique_ptr<ServedModel> MakeByteModel(const std::string& name, int64_t max_positions) {
  const std::string config =
      Json{{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"chat_template", kTemplate}}.dump();
  auto model = std::make_unique<ServedModel>();
  model->name = name;
  model->tokenizer = engine::Tokenizer::FromJson(TokenizerJson(), config).value();
  model->chat_template = engine::ChatTemplate::Parse(kTemplate).value();
  model->eos_ids = {kEos};
  model->max_positions = max_positions;
  model->vocab_size = 258;
  return model;
}

std::unique_ptr<ServedModel> MakeSpaceModel(const std::string& name, int64_t max_positions) {
  const Json space = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}};
  const Json back = {{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}};
  const Json prepend = {{"type", "Prepend"}, {"prepend", "▁"}};
  const Json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  const Json vocab = {{"<unk>", 0}, {"<s>", kSpaceBos}, {"</s>", 2},     {"▁", 3},
                      {"a", 4},     {"b", 5},           {"▁a", kSpaceA}, {"▁b", kSpaceB}};
  const std::string tokenizer =
      Json{{"added_tokens", {AddedToken(kSpaceBos, "<s>"), AddedToken(2, "</s>")}},
           {"normalizer", {{"type", "Sequence"}, {"normalizers", Json::array({prepend, space})}}},
           {"pre_tokenizer", nullptr},
           {"post_processor", nullptr},
           {"decoder",
            {{"type", "Sequence"},
             {"decoders", Json::array({back, Json{{"type", "Fuse"}}, strip})}}},
           {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"▁ a", "▁ b"}}}}}
          .dump();
  auto model = std::make_unique<ServedModel>();
  model->name = name;
  model->tokenizer =
      engine::Tokenizer::FromJson(
          tokenizer, R"({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": true})")
          .value();
  model->eos_ids = {2};
  model->max_positions = max_positions;
  model->vocab_size = 8;
  return model;
}

std::vector<int32_t> BytesOf(std::string_view text) {
  std::vector<int32_t> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

}  // namespace skein::services::testing
