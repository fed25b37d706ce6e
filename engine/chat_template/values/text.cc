#include "engine/chat_template/values/text.h"

#include <string.h>

#include <utf8proc.h>

#include <algorithm>

namespace skein::engine::chat_template {
namespace {

// An invalid byte stands for itself, outside of Unicode's range.
constexpr char32_t kInvalidByte = 0x110000;

utf8proc_category_t Category(char32_t c) {
  return c < kInvalidByte ? utf8proc_category(static_cast<utf8proc_int32_t>(c))
                          : UTF8PROC_CATEGORY_CN;
}

void AppendUpper(char32_t c, std::string* out) {
  if (c == U'ß') {
    out->append("SS");
  } else {
    AppendCodePoint(c < kInvalidByte ? utf8proc_toupper(c) : c, out);
  }
}

void AppendLower(char32_t c, std::string* out) {
  AppendCodePoint(c < kInvalidByte ? utf8proc_tolower(c) : c, out);
}

bool IsStripped(char32_t c, const std::string_view* chars) {
  if (chars == nullptr) return IsSpace(c);
  for (size_t i = 0; i < chars->size();) {
    const CodePoint p = CodePointAt(*chars, i);
    if (p.value == c) return true;
    i += p.bytes;
  }
  return false;
}

bool IsLineBreak(char32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

CodePoint CodePointAt(std::string_view s, size_t position) {
  const unsigned char first = s[position];
  if (first < 0x80) return {first, 1};
  utf8proc_int32_t value = 0;
  const utf8proc_ssize_t n = utf8proc_iterate(
      reinterpret_cast<const utf8proc_uint8_t*>(s.data()) + position,
      static_cast<utf8proc_ssize_t>(std::min<size_t>(4, s.size() - position)), &value);
  if (n <= 0) return {kInvalidByte + first, 1};
  return {static_cast<char32_t>(value), static_cast<size_t>(n)};
}

CodePoint CodePointBefore(std::string_view s, size_t end) {
  for (size_t n = 1; n <= 4 && n <= end; ++n) {
    if ((static_cast<unsigned char>(s[end - n]) & 0xc0) == 0x80) continue;
    const CodePoint p = CodePointAt(s, end - n);
    if (p.bytes == n) return p;
    break;
  }
  return {kInvalidByte + static_cast<unsigned char>(s[end - 1]), 1};
}

void AppendCodePoint(char32_t value, std::string* out) {
  if (value >= kInvalidByte) {
    out->push_back(static_cast<char>(value - kInvalidByte));
    return;
  }
  utf8proc_uint8_t buffer[4];
  const utf8proc_ssize_t n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(value), buffer);
  out->append(reinterpret_cast<const char*>(buffer), static_cast<size_t>(n));
}

bool IsAscii(std::string_view s) {
  return std::all_of(s.begin(), s.end(), [](char c) { return static_cast<signed char>(c) >= 0; });
}

size_t CodePointCount(std::string_view s) {
  size_t count = 0;
  for (size_t i = 0; i < s.size(); i += CodePointAt(s, i).bytes) ++count;
  return count;
}

std::vector<std::string_view> SplitCodePoints(std::string_view s) {
  std::vector<std::string_view> points;
  points.reserve(s.size());
  for (size_t i = 0; i < s.size();) {
    const size_t n = CodePointAt(s, i).bytes;
    points.push_back(s.substr(i, n));
    i += n;
  }
  return points;
}

size_t Find(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  // glibc's memmem is two-way string matching; std::string_view::find is quadratic at worst.
  const void* at = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return at == nullptr ? std::string_view::npos
                       : static_cast<size_t>(static_cast<const char*>(at) - text.data());
}

bool IsSpace(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20);
  return c == 0x85 || Category(c) == UTF8PROC_CATEGORY_ZS || c == 0x2028 || c == 0x2029;
}

bool IsAlpha(char32_t c) {
  const utf8proc_category_t k = Category(c);
  return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT ||
         k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_LO;
}

bool IsDigit(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_ND; }

bool IsAlnum(char32_t c) {
  const utf8proc_category_t k = Category(c);
  return IsAlpha(c) || k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL ||
         k == UTF8PROC_CATEGORY_NO;
}

bool IsLower(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LL; }
bool IsUpper(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LU; }

bool IsPrintable(char32_t c) {
  if (c == ' ') return true;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

std::string Lower(std::string_view s) {
  std::string out;
  for (size_t i = 0; i < s.size();) {
    const CodePoint p = CodePointAt(s, i);
    AppendLower(p.value, &out);
    i += p.bytes;
  }
  return out;
}

std::string Upper(std::string_view s) {
  std::string out;
  for (size_t i = 0; i < s.size();) {
    const CodePoint p = CodePointAt(s, i);
    AppendUpper(p.value, &out);
    i += p.bytes;
  }
  return out;
}

std::string Capitalize(std::string_view s) {
  if (s.empty()) return "";
  const size_t first = CodePointAt(s, 0).bytes;
  return Upper(s.substr(0, first)) + Lower(s.substr(first));
}

std::string Title(std::string_view s) {
  std::string out;
  bool in_word = false;
  for (size_t i = 0; i < s.size();) {
    const CodePoint p = CodePointAt(s, i);
    in_word ? AppendLower(p.value, &out) : AppendUpper(p.value, &out);
    in_word = IsLower(p.value) || IsUpper(p.value);
    i += p.bytes;
  }
  return out;
}

std::string SwapCase(std::string_view s) {
  std::string out;
  for (size_t i = 0; i < s.size();) {
    const CodePoint p = CodePointAt(s, i);
    IsUpper(p.value) ? AppendLower(p.value, &out) : AppendUpper(p.value, &out);
    i += p.bytes;
  }
  return out;
}

std::string_view StripLeft(std::string_view s, const std::string_view* chars) {
  size_t i = 0;
  while (i < s.size()) {
    const CodePoint p = CodePointAt(s, i);
    if (!IsStripped(p.value, chars)) break;
    i += p.bytes;
  }
  return s.substr(i);
}

std::string_view StripRight(std::string_view s, const std::string_view* chars) {
  size_t end = s.size();
  while (end > 0) {
    const CodePoint p = CodePointBefore(s, end);
    if (!IsStripped(p.value, chars)) break;
    end -= p.bytes;
  }
  return s.substr(0, end);
}

std::vector<std::string_view> SplitLines(std::string_view s, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t i = 0; i < s.size();) {
    const CodePoint p = CodePointAt(s, i);
    if (!IsLineBreak(p.value)) {
      i += p.bytes;
      continue;
    }
    const bool crlf = p.value == '\r' && i + 1 < s.size() && s[i + 1] == '\n';
    const size_t next = i + p.bytes + (crlf ? 1 : 0);
    lines.push_back(s.substr(start, (keep_ends ? next : i) - start));
    start = i = next;
  }
  if (start < s.size()) lines.push_back(s.substr(start));
  return lines;
}

}  // namespace skein::engine::chat_template
