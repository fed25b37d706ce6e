// The `pre_tokenizer` of tokenizer.json: cuts a text into the pieces within which BPE merges.
// Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit,
// CharDelimiterSplit, Sequence.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/tokenizer/components/pattern.h"
#include "engine/tokenizer/text/json_reader.h"

namespace skein::engine {

// Views into the text given or into `rewritten`.
struct Pieces {
  std::vector<std::string_view> views;
  std::deque<std::string> rewritten;
};

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

class PreTokenizer {
 public:
  // `json` may be nullptr or null: a text is one piece then.
  static absl::StatusOr<PreTokenizer> FromJson(const Json* json);

  // The vocabulary is spelled in the byte-level alphabet; the pieces are raw bytes all the same.
  bool byte_level() const { return byte_level_; }

  // Every byte of a text is in one of its pieces, rewritten as no fewer bytes.
  bool KeepsText() const;

  // at_start: the text is the beginning of what the caller encodes. REQUIRES: text is valid UTF-8;
  // it and *pieces outlive the views. The pieces are valid UTF-8.
  void Split(std::string_view text, bool at_start, Pieces* pieces) const;

 private:
  struct Splitter {
    // Where to cut: a pattern, or runs of characters of a class.
    std::variant<Pattern, bool (*)(char32_t)> where;
    SplitBehavior behavior;
    bool invert;
  };
  struct PrefixSpace {};
  struct Metaspace {
    enum class Prepend { kFirst, kAlways, kNever };
    std::string replacement;
    Prepend prepend;
  };
  using Step = std::variant<Splitter, PrefixSpace, Metaspace>;

  absl::Status AddStep(const Component& component);
  absl::Status AddSplit(JsonReader* reader);
  absl::Status AddByteLevel(JsonReader* reader);
  absl::Status AddMetaspace(JsonReader* reader);
  absl::Status AddOthers(const std::string& type, JsonReader* reader);
  absl::Status AddRegex(std::string_view expression, SplitBehavior behavior, bool invert);
  static void Run(const Step& step, bool at_start, Pieces* pieces);
  static void RunSplitter(const Splitter& splitter, Pieces* pieces);
  static void RunMetaspace(const Metaspace& metaspace, bool at_start, Pieces* pieces);

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace skein::engine
