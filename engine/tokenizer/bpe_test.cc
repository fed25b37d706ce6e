#include "engine/tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace skein::engine {
namespace {

// A vocabulary of four letters and random merges, and the definition of BPE, step by step, on it.
struct RandomBpe {
  explicit RandomBpe(std::mt19937_64* random) {
    for (const char c : std::string("abcd")) tokens.emplace_back(1, c);
    while (tokens.size() < 60) {
      const std::string& left = tokens[(*random)() % tokens.size()];
      const std::string& right = tokens[(*random)() % tokens.size()];
      const std::string merged = left + right;
      if (merged.size() > 12 || !pairs.insert({left, right}).second) continue;
      merges.push_back({left, right});
      if (std::find(tokens.begin(), tokens.end(), merged) == tokens.end()) tokens.push_back(merged);
    }
  }

  BpeModel Model() const {
    TokenizerJson json;
    json.document = Json::parse(R"({"model": {"type": "BPE"}})");
    for (size_t id = 0; id < tokens.size(); ++id) {
      json.vocab_tokens.Add(tokens[id]);
      json.vocab_ids.push_back(static_cast<int64_t>(id));
    }
    for (const auto& [left, right] : merges) {
      json.merges.Add(left);
      json.merges.Add(right);
    }
    return *BpeModel::Create(json, /*byte_level=*/true);
  }

  std::vector<std::string> Encode(const std::string& text) const {
    std::vector<std::string> parts;
    for (const char c : text) parts.emplace_back(1, c);
    while (true) {
      size_t best = merges.size(), at = 0;
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto merge =
            std::find(merges.begin(), merges.end(), std::pair(parts[i], parts[i + 1]));
        const auto rank = static_cast<size_t>(merge - merges.begin());
        if (rank < best) best = rank, at = i;
      }
      if (best == merges.size()) return parts;
      parts[at] += parts[at + 1];
      parts.erase(parts.begin() + static_cast<ptrdiff_t>(at) + 1);
    }
  }

  std::vector<std::string> tokens;
  std::vector<std::pair<std::string, std::string>> merges;
  std::set<std::pair<std::string, std::string>> pairs;
};

// Lengths on both sides of the change from scanning to the heap.
TEST(BpeTest, MergesAsTheDefinitionSays) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 16; ++round) {
    const RandomBpe oracle(&random);
    const BpeModel model = oracle.Model();
    BpeModel::Scratch scratch;
    for (const size_t length : {1, 2, 3, 8, 47, 48, 49, 50, 120}) {
      std::string text;
      while (text.size() < length) text += static_cast<char>('a' + random() % (1 + round % 4));
      for (int again = 0; again < 2; ++again) {  // the second time with what the first found out
        std::vector<int32_t> ids;
        model.Encode(text, &scratch, &ids);
        std::vector<std::string> parts;
        for (const int32_t id : ids) parts.push_back(model.tokens()[static_cast<size_t>(id)]);
        ASSERT_EQ(parts, oracle.Encode(text));
      }
    }
  }
}

}  // namespace
}  // namespace skein::engine
