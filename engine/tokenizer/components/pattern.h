// A literal or a regular expression that cuts a text into matches and gaps.
//
// Expressions in tokenizer.json are written for Oniguruma's Ruby syntax; they run on PCRE2 (UTF,
// UCP, JIT) with \s and \w spelled out as Oniguruma has them. A match that exceeds the engine's
// limits ends the search: the rest of the text is one gap, so no input can make a search explode.
//
// Threads: const methods from any number of threads at once.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/tokenizer/text/json_reader.h"

namespace skein::engine {

struct Span {
  size_t begin;
  size_t end;
  bool is_match;
};

class Pattern {
 public:
  // {"String": literal} or {"Regex": expression}. INVALID_ARGUMENT for anything else, for an empty
  // literal, for an expression that does not compile and for one that combines character classes
  // (&&, or a class inside a class), which Oniguruma and PCRE2 understand differently.
  static absl::StatusOr<Pattern> FromJson(const Json& json, const std::string& path);
  static absl::StatusOr<Pattern> Regex(std::string_view expression);
  static absl::StatusOr<Pattern> Literal(std::string literal);

  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  // The length of the literal; 0 for a regular expression.
  size_t literal_bytes() const { return literal_.size(); }

  // Appends spans that cover `text` in order; gaps between adjacent matches are not listed, empty
  // matches are. REQUIRES: text is valid UTF-8.
  void Cut(std::string_view text, std::vector<Span>* spans) const;

  // `text` with every match replaced by `content`. REQUIRES: text is valid UTF-8.
  std::string ReplaceAll(std::string_view text, std::string_view content) const;

 private:
  struct Compiled;
  Pattern();

  void CutLiteral(std::string_view text, std::vector<Span>* spans) const;
  void CutRegex(std::string_view text, std::vector<Span>* spans) const;

  std::string literal_;  // "" where a regular expression is compiled
  std::unique_ptr<Compiled> compiled_;
};

// The expression in PCRE2's syntax with Oniguruma's meaning of \s, \S, \w, \W and \h.
std::string TranslateRegex(std::string_view expression);

}  // namespace skein::engine
