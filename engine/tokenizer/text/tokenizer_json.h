// Parses tokenizer.json. The vocabulary and the merges, some 450,000 strings in an 11 MB file, go
// to compact storage while they are read; the rest, small, becomes an ordinary JSON document.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/tokenizer/text/json_reader.h"

namespace skein::engine {

// Strings one after the other in one allocation.
class StringList {
 public:
  void Add(std::string_view s) {
    bytes_ += s;
    ends_.push_back(bytes_.size());
  }
  size_t size() const { return ends_.size(); }
  std::string_view operator[](size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(bytes_).substr(begin, ends_[i] - begin);
  }

 private:
  std::string bytes_;
  std::vector<size_t> ends_;
};

struct TokenizerJson {
  Json document;                   // all but model.vocab and model.merges
  StringList vocab_tokens;         // keys of model.vocab, in file order
  std::vector<int64_t> vocab_ids;  // and their values
  StringList merges;               // left and right halves in turn; merge i has rank i
  std::string
      vocab_error;  // why model.vocab or model.merges has not the form that BPE needs; "" if it has
};

// INVALID_ARGUMENT for what is not JSON or nests too deeply.
absl::StatusOr<TokenizerJson> ParseTokenizerJson(std::string_view text);

}  // namespace skein::engine
