// tokenizer.json files small enough to read, for tests.
#pragma once

#include <string>
#include <vector>

namespace skein::engine {

// Sections of a tokenizer.json as JSON text. The vocabulary is the letters a to e, space as Ġ and
// as ▁, "<unk>", and what the merges make, in order: unk 0, a 1, b 2, c 3, d 4, e 5, Ġ 6, ▁ 7, ab
// 8, abc 9, Ġab 10, ▁ab 11.
struct SmallTokenizer {
  std::string added_tokens = "[]";
  std::string normalizer = "null";
  std::string pre_tokenizer = "null";
  std::string post_processor = "null";
  std::string decoder = R"({"type": "Fuse"})";
  std::string model_extra;  // e.g. R"(, "ignore_merges": true)"

  std::string Json() const {
    return R"({"added_tokens": )" + added_tokens + R"(, "normalizer": )" + normalizer +
           R"(, "pre_tokenizer": )" + pre_tokenizer + R"(, "post_processor": )" + post_processor +
           R"(, "decoder": )" + decoder + R"(, "model": {"type": "BPE", "vocab": {
             "<unk>": 0, "a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "Ġ": 6, "▁": 7, "ab": 8, "abc": 9,
             "Ġab": 10, "▁ab": 11}, "merges": ["a b", ["ab", "c"], "Ġ ab", "▁ ab"])" +
           model_extra + "}}";
  }
};

}  // namespace skein::engine
