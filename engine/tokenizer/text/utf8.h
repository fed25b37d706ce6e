// UTF-8 as Unicode's table 3-7 defines it, and the character classes the tokenizers' rules name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace skein::engine {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

enum class Utf8Form { kWellFormed, kTruncated, kIllFormed };

// The first sequence of bytes: a whole character, the beginning of one cut off by the end of
// `bytes`, or the maximal subpart of an ill-formed one. REQUIRES: not empty; the size returned is
// at least 1.
struct Utf8Sequence {
  Utf8Form form;
  size_t size;
};
Utf8Sequence ReadUtf8Sequence(std::string_view bytes);

bool IsUtf8(std::string_view bytes);
bool IsAscii(std::string_view bytes);

// U+FFFD for every maximal ill-formed subpart.
std::string ReplaceIllFormed(std::string_view bytes);

// The character that starts at text[*pos]; advances *pos. REQUIRES: text is valid UTF-8 and *pos <
// text.size().
char32_t NextChar(std::string_view text, size_t* pos);

// The character that ends before text[pos]. REQUIRES: text is valid UTF-8 and pos > 0.
char32_t CharBefore(std::string_view text, size_t pos);
size_t StartOfCharBefore(std::string_view text, size_t pos);

void AppendUtf8(char32_t c, std::string* out);

bool IsWhiteSpace(char32_t c);   // White_Space
bool IsNumeric(char32_t c);      // general categories N
bool IsMark(char32_t c);         // general categories M
bool IsWordChar(char32_t c);     // L, M, Nd, Nl, Pc: the \w of regular expressions
bool IsPunctuation(char32_t c);  // ASCII punctuation and symbols, and general categories P

}  // namespace skein::engine
