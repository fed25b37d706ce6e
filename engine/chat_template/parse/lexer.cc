#include "engine/chat_template/parse/lexer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/chat_template/values/literals.h"
#include "engine/chat_template/values/text.h"

namespace skein::engine::chat_template {
namespace {

constexpr std::array<std::string_view, 6> kLongOperators = {"//", "**", "==", "!=", ">=", "<="};
constexpr std::string_view kOperators = "+-/*%~[](){}><=.:|,;";

// "\r\n" and "\r" become "\n", and one newline at the very end goes, as Jinja does it.
std::string Normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      out.push_back('\n');
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool IsNameStart(char32_t c) { return c == '_' || IsAlpha(c); }
bool IsNamePart(char32_t c) { return c == '_' || IsAlnum(c); }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(Normalize(source)) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (position_ < source_.size() && error_.empty()) LexRoot();
    if (!error_.empty()) return absl::InvalidArgumentError(error_);
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view Rest() const { return std::string_view(source_).substr(position_); }
  bool StartsWith(std::string_view s) const { return Rest().substr(0, s.size()) == s; }

  void Fail(std::string_view message) {
    if (error_.empty()) error_ = absl::StrCat("line ", line_, ": ", std::string(message));
  }

  void Add(TokenKind kind, std::string text) {
    Token token;
    token.kind = kind;
    token.text = std::move(text);
    token.line = line_;
    tokens_.push_back(std::move(token));
  }

  void Advance(size_t bytes) {
    const std::string_view passed = Rest().substr(0, bytes);
    line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    if (!passed.empty()) at_line_start_ = passed.back() == '\n';
    position_ += passed.size();
  }

  void SkipSpace() { Advance(Rest().size() - StripLeft(Rest()).size()); }

  // Text up to the next tag, then that tag.
  void LexRoot() {
    size_t begin = position_;
    while (true) {
      begin = source_.find('{', begin);
      if (begin == std::string::npos) {
        Add(TokenKind::kText, std::string(Rest()));
        Advance(Rest().size());
        return;
      }
      const char next = begin + 1 < source_.size() ? source_[begin + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') break;
      ++begin;
    }
    const char kind = source_[begin + 1];
    const char sign = begin + 2 < source_.size() ? source_[begin + 2] : '\0';
    const bool has_sign = sign == '-' || sign == '+';
    AddText(begin - position_, sign, kind != '{');
    Advance(begin - position_ + (has_sign ? 3 : 2));
    if (kind == '#') return SkipComment();
    if (kind == '%' && LexRaw()) return;
    LexTag(kind == '{');
  }

  // What precedes a tag, less the white space that the tag's sign or lstrip_blocks takes away.
  void AddText(size_t bytes, char sign, bool is_block) {
    std::string_view text = Rest().substr(0, bytes);
    if (sign == '-') {
      text = StripRight(text);
    } else if (sign != '+' && is_block) {
      const size_t newline = text.rfind('\n');
      const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
      const bool starts_line = line_start > 0 || at_line_start_;
      if (starts_line && StripLeft(text.substr(line_start)).empty())
        text = text.substr(0, line_start);
    }
    if (!text.empty()) Add(TokenKind::kText, std::string(text));
  }

  // Bytes of "%}" with its sign at the current position, 0 if there is none.
  size_t EndTagAt(std::string_view end) const {
    if (StartsWith(end)) return end.size();
    const bool sign = StartsWith("-") || (StartsWith("+") && end != "}}");
    return sign && Rest().substr(1, end.size()) == end ? 1 + end.size() : 0;
  }

  // Passes an end tag and the white space that goes with it.
  void PassEndTag(size_t bytes, bool trims_newline) {
    const char sign = bytes == 3 ? source_[position_] : '\0';
    Advance(bytes);
    if (sign == '-') {
      SkipSpace();
    } else if (sign != '+' && trims_newline && StartsWith("\n")) {
      Advance(1);
    }
  }

  void SkipComment() {
    const size_t end = source_.find("#}", position_);
    if (end == std::string::npos) return Fail("missing end of comment tag");
    const char before = end > position_ ? source_[end - 1] : '\0';
    const bool has_sign = before == '-' || before == '+';
    Advance(end - position_ - (has_sign ? 1 : 0));
    PassEndTag(has_sign ? 3 : 2, true);
  }

  // "{% raw %}" up to "{% endraw %}"; false where the tag is another one.
  bool LexRaw() {
    const std::string_view rest = Rest();
    std::string_view tag = StripLeft(rest);
    if (tag.substr(0, 3) != "raw") return false;
    tag = StripLeft(tag.substr(3));
    const bool minus = tag.substr(0, 3) == "-%}";
    if (!minus && tag.substr(0, 2) != "%}") return false;
    Advance(rest.size() - tag.size() + (minus ? 3 : 2));
    if (minus) SkipSpace();
    for (size_t at = source_.find("{%", position_); at != std::string::npos;
         at = source_.find("{%", at + 2)) {
      if (EndRawAt(at)) return true;
    }
    Fail("Missing end of raw directive");
    return true;
  }

  bool EndRawAt(size_t at) {
    const char sign = at + 2 < source_.size() ? source_[at + 2] : '\0';
    const size_t name = at + (sign == '-' || sign == '+' ? 3 : 2);
    std::string_view tag = StripLeft(std::string_view(source_).substr(name));
    if (tag.substr(0, 6) != "endraw") return false;
    tag = StripLeft(tag.substr(6));
    const bool has_sign = tag.substr(0, 3) == "-%}" || tag.substr(0, 3) == "+%}";
    if (!has_sign && tag.substr(0, 2) != "%}") return false;
    AddText(at - position_, sign, true);
    Advance(source_.size() - tag.size() - position_);
    PassEndTag(has_sign ? 3 : 2, true);
    return true;
  }

  void LexTag(bool is_variable) {
    Add(is_variable ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
    const std::string_view end = is_variable ? "}}" : "%}";
    std::string open;  // brackets that await their end; inside them "}}" is two brackets
    while (error_.empty()) {
      SkipSpace();
      if (Rest().empty()) return Fail("unexpected end of template inside a tag");
      const size_t end_bytes = open.empty() ? EndTagAt(end) : 0;
      if (end_bytes > 0) {
        Add(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "");
        return PassEndTag(end_bytes, !is_variable);
      }
      LexToken(&open);
    }
  }

  void LexToken(std::string* open) {
    const CodePoint c = CodePointAt(source_, position_);
    if (c.value < 0x80 && std::isdigit(static_cast<int>(c.value))) return LexNumber();
    if (IsNameStart(c.value)) return LexName();
    if (c.value == '\'' || c.value == '"') return LexString(static_cast<char>(c.value));
    for (std::string_view op : kLongOperators) {
      if (StartsWith(op)) return LexOperator(op);
    }
    if (c.value >= 0x80 || kOperators.find(static_cast<char>(c.value)) == std::string_view::npos) {
      return Fail(absl::StrCat("unexpected char '", std::string(Rest().substr(0, c.bytes)), "'"));
    }
    Balance(static_cast<char>(c.value), open);
    LexOperator(Rest().substr(0, 1));
  }

  void Balance(char c, std::string* open) {
    if (c == '(') open->push_back(')');
    if (c == '[') open->push_back(']');
    if (c == '{') open->push_back('}');
    if (c != ')' && c != ']' && c != '}') return;
    if (open->empty() || open->back() != c) {
      return Fail(absl::StrCat("unexpected '", std::string(1, c), "'"));
    }
    open->pop_back();
  }

  void LexOperator(std::string_view op) {
    Add(TokenKind::kOperator, std::string(op));
    Advance(op.size());
  }

  void LexName() {
    size_t end = position_;
    while (end < source_.size()) {
      const CodePoint c = CodePointAt(source_, end);
      if (!IsNamePart(c.value)) break;
      end += c.bytes;
    }
    Add(TokenKind::kName, source_.substr(position_, end - position_));
    Advance(end - position_);
  }

  void LexNumber() {
    bool is_float = false;
    size_t bytes = NumberLength(Rest(), &is_float);
    // In "a.0.5" each number is an index.
    if (is_float && position_ > 0 && source_[position_ - 1] == '.') {
      bytes = std::min(Rest().find_first_not_of("0123456789_"), Rest().size());
      is_float = false;
    }
    const auto value = ParseNumber(Rest().substr(0, bytes), is_float);
    if (!value) return Fail("a number that is too large");
    Add(TokenKind::kNumber, std::string(Rest().substr(0, bytes)));
    tokens_.back().number = *value;
    Advance(bytes);
  }

  void LexString(char quote) {
    size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return Fail("a string that does not end");
    auto text = Unescape(std::string_view(source_).substr(position_ + 1, end - position_ - 1));
    if (!text) return Fail("a broken escape in a string");
    Add(TokenKind::kString, *std::move(text));
    Advance(end + 1 - position_);
  }

  std::string source_;
  size_t position_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;
  std::string error_;
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) { return Lexer(source).Run(); }

}  // namespace skein::engine::chat_template
