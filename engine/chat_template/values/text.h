// UTF-8 text as Python sees it: code points, white space, lines, case. A byte that is not part of
// a valid sequence counts as one code point of its own and is kept as it is.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace skein::engine::chat_template {

// The code point at `position` (< s.size()) and its length in bytes.
struct CodePoint {
  char32_t value;
  size_t bytes;
};
CodePoint CodePointAt(std::string_view s, size_t position);
// The one that ends before `end` (> 0).
CodePoint CodePointBefore(std::string_view s, size_t end);
void AppendCodePoint(char32_t value, std::string* out);

bool IsAscii(std::string_view s);
size_t CodePointCount(std::string_view s);
std::vector<std::string_view> SplitCodePoints(std::string_view s);

// Byte offset of the first `needle` at or after `from`, npos if none. Linear time.
size_t Find(std::string_view text, std::string_view needle, size_t from = 0);

// str.isspace of one code point; the white space of str.strip() and of re's \s.
bool IsSpace(char32_t c);
bool IsAlpha(char32_t c);
bool IsDigit(char32_t c);
bool IsAlnum(char32_t c);
bool IsLower(char32_t c);
bool IsUpper(char32_t c);
// Printed as itself by repr().
bool IsPrintable(char32_t c);

std::string Lower(std::string_view s);
std::string Upper(std::string_view s);
// First code point in upper case, the rest in lower case.
std::string Capitalize(std::string_view s);
// str.title(): so for each run of letters.
std::string Title(std::string_view s);
std::string SwapCase(std::string_view s);

// White space, or any of the code points in *chars.
std::string_view StripLeft(std::string_view s, const std::string_view* chars = nullptr);
std::string_view StripRight(std::string_view s, const std::string_view* chars = nullptr);

std::vector<std::string_view> SplitLines(std::string_view s, bool keep_ends);

}  // namespace skein::engine::chat_template
