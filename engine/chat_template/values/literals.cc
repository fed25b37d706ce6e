#include "engine/chat_template/values/literals.h"

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "engine/chat_template/values/text.h"

namespace skein::engine::chat_template {
namespace {

bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }

int DigitValue(char c) {
  if (IsAsciiDigit(c)) return c - '0';
  const int lower = std::tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 99;
}

// Digits with single underscores between them.
size_t DigitsLength(std::string_view s, size_t from, int base = 10) {
  size_t i = from;
  while (i < s.size()) {
    const bool digit = DigitValue(s[i]) < base;
    const bool joint = s[i] == '_' && i > from && s[i - 1] != '_' && i + 1 < s.size() &&
                       DigitValue(s[i + 1]) < base;
    if (!digit && !joint) break;
    ++i;
  }
  return i - from;
}

int BaseOfPrefix(std::string_view s) {
  if (s.size() < 2 || s[0] != '0') return 10;
  switch (s[1]) {
    case 'x':
    case 'X':
      return 16;
    case 'o':
    case 'O':
      return 8;
    case 'b':
    case 'B':
      return 2;
    default:
      return 10;
  }
}

// Hex digits, exactly `count` of them.
std::optional<char32_t> Hex(std::string_view s, size_t from, size_t count) {
  if (from + count > s.size()) return std::nullopt;
  char32_t value = 0;
  for (size_t i = from; i < from + count; ++i) {
    const int digit = DigitValue(s[i]);
    if (digit > 15) return std::nullopt;
    value = value * 16 + static_cast<char32_t>(digit);
  }
  return value;
}

std::string WithoutUnderscores(std::string_view s) {
  std::string out;
  for (char c : s) {
    if (c != '_') out.push_back(c);
  }
  return out;
}

// One-letter escapes; 0 where `c` is none.
char SimpleEscape(char c) {
  switch (c) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case 'a':
      return '\a';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case '\\':
    case '\'':
    case '"':
      return c;
    default:
      return 0;
  }
}

size_t HexDigitsOf(char escape) {
  return escape == 'x' ? 2 : escape == 'u' ? 4 : escape == 'U' ? 8 : 0;
}

// The escape after the backslash at body[i]; returns the bytes it takes, 0 where it is broken.
size_t AppendEscape(std::string_view body, size_t i, std::string* out) {
  const char c = body[i + 1];
  if (c == '\n') return 2;
  if (const char simple = SimpleEscape(c)) {
    out->push_back(simple);
    return 2;
  }
  if (const size_t digits = HexDigitsOf(c)) {
    const auto value = Hex(body, i + 2, digits);
    if (!value || *value > 0x10ffff) return 0;
    AppendCodePoint(*value, out);
    return 2 + digits;
  }
  if (c >= '0' && c <= '7') {
    size_t n = 1;
    char32_t value = 0;
    for (; n <= 3 && i + n < body.size() && body[i + n] >= '0' && body[i + n] <= '7'; ++n) {
      value = value * 8 + static_cast<char32_t>(body[i + n] - '0');
    }
    AppendCodePoint(value, out);
    return n;
  }
  out->push_back('\\');
  return 1;
}

}  // namespace

std::optional<std::string> Unescape(std::string_view body) {
  std::string out;
  for (size_t i = 0; i < body.size();) {
    if (body[i] != '\\' || i + 1 == body.size()) {
      out.push_back(body[i++]);
      continue;
    }
    const size_t taken = AppendEscape(body, i, &out);
    if (taken == 0) return std::nullopt;
    i += taken;
  }
  return out;
}

size_t NumberLength(std::string_view source, bool* is_float) {
  *is_float = false;
  if (const int base = BaseOfPrefix(source); base != 10) {
    const size_t digits = DigitsLength(source, 2, base);
    if (digits > 0) return 2 + digits;
  }
  size_t n = DigitsLength(source, 0);
  if (n + 1 < source.size() && source[n] == '.' && IsAsciiDigit(source[n + 1])) {
    *is_float = true;
    n += 1 + DigitsLength(source, n + 1);
  }
  if (n < source.size() && (source[n] == 'e' || source[n] == 'E')) {
    const size_t sign =
        n + 1 < source.size() && (source[n + 1] == '+' || source[n + 1] == '-') ? 1 : 0;
    if (const size_t digits = DigitsLength(source, n + 1 + sign)) {
      *is_float = true;
      n += 1 + sign + digits;
    }
  }
  return n;
}

std::optional<Value> ParseNumber(std::string_view text, bool is_float) {
  if (is_float) {
    const auto value = ParseFloat(text);
    return value ? std::optional<Value>(*value) : std::nullopt;
  }
  const auto value = ParseInt(text, BaseOfPrefix(text));
  return value ? std::optional<Value>(*value) : std::nullopt;
}

std::optional<Int> ParseInt(std::string_view text, int base) {
  text = StripLeft(StripRight(text));
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  if (base != 10 && BaseOfPrefix(text) == base) text.remove_prefix(2);
  if (text.empty() || base < 2 || DigitsLength(text, 0, base) != text.size()) return std::nullopt;
  Int value = 0;
  for (char c : text) {
    if (c == '_') continue;
    if (__builtin_mul_overflow(value, Int{base}, &value)) return std::nullopt;
    if (__builtin_add_overflow(value, Int{DigitValue(c)}, &value)) return std::nullopt;
  }
  return negative ? -value : value;
}

std::optional<double> ParseFloat(std::string_view text) {
  text = StripLeft(StripRight(text));
  std::string_view magnitude = text;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) magnitude.remove_prefix(1);
  const bool negative = magnitude.size() != text.size() && text[0] == '-';
  const std::string lower = Lower(magnitude);
  if (lower == "inf" || lower == "infinity") {
    return negative ? -std::numeric_limits<double>::infinity()
                    : std::numeric_limits<double>::infinity();
  }
  if (lower == "nan") return std::nan("");
  // What strtod takes beyond Python's (hexadecimal floats) has letters; exponents have one.
  for (char c : lower) {
    if (!IsAsciiDigit(c) && std::string_view(".e+-_").find(c) == std::string_view::npos) {
      return std::nullopt;
    }
  }
  const std::string digits = WithoutUnderscores(lower);
  if (digits.empty() || digits[0] == '+' || digits[0] == '-') return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(digits.c_str(), &end);
  if (end != digits.c_str() + digits.size()) return std::nullopt;
  return negative ? -value : value;
}

}  // namespace skein::engine::chat_template
