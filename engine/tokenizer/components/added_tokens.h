// Tokens that are found in the text by their spelling, before BPE sees it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/tokenizer/text/json_reader.h"

namespace skein::engine {

struct AddedToken {
  int32_t id = -1;
  std::string content;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and after it
  bool normalized = false;   // looked for in normalised text
  bool special = false;
};

// The entries of tokenizer.json's `added_tokens`, completed by those of tokenizer_config.json's
// `added_tokens_decoder` that have another content. Entries without content are dropped.
absl::StatusOr<std::vector<AddedToken>> ReadAddedTokens(const Json& tokenizer, const Json& config);

// Part of a text: an added token, or (id < 0) what lies between.
struct Segment {
  int32_t id;
  size_t begin;
  size_t end;
};

// Finds the leftmost longest tokens of a set. Threads: const methods from any number of threads at
// once.
class AddedTokenFinder {
 public:
  // Looks for `spelling` where it stands for `token`. The first token with a spelling keeps it; ""
  // is ignored.
  void Add(std::string_view spelling, const AddedToken& token);

  bool empty() const { return nodes_.size() == 1; }

  // Appends segments that cover `text` in order. With skip_special, special tokens are passed over
  // as ordinary text. REQUIRES: text is valid UTF-8.
  void Cut(std::string_view text, bool skip_special, std::vector<Segment>* segments) const;

 private:
  struct Node {
    int32_t token = -1;  // index into tokens_
    std::vector<std::pair<unsigned char, uint32_t>> children;
  };

  uint32_t Child(uint32_t node, unsigned char c) const;  // 0 for none
  // The longest token at text[at], as an index into tokens_, -1 for none.
  int32_t LongestAt(std::string_view text, size_t at, size_t* size) const;
  static bool IsAloneAt(std::string_view text, size_t begin, size_t end);

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_{1};
  std::array<bool, 256> begins_{};
};

}  // namespace skein::engine
