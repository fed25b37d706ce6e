#include "engine/tokenizer/text/utf8.h"

#include <utf8proc.h>

#include <cstring>

namespace skein::engine {
namespace {

bool IsContinuation(unsigned char b) { return (b & 0xC0) == 0x80; }

// The range of the second byte after `lead`, and the whole size; size 0 for a byte that leads
// nothing.
struct LeadByte {
  size_t size;
  unsigned char second_min, second_max;
};

LeadByte Classify(unsigned char lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead < 0xF0)
    return {3, static_cast<unsigned char>(lead == 0xE0 ? 0xA0 : 0x80),
            static_cast<unsigned char>(lead == 0xED ? 0x9F : 0xBF)};
  if (lead < 0xF5)
    return {4, static_cast<unsigned char>(lead == 0xF0 ? 0x90 : 0x80),
            static_cast<unsigned char>(lead == 0xF4 ? 0x8F : 0xBF)};
  return {0, 0, 0};
}

size_t AsciiPrefix(std::string_view bytes) {
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    if (word & 0x8080808080808080u) break;
  }
  while (i < bytes.size() && static_cast<unsigned char>(bytes[i]) < 0x80) ++i;
  return i;
}

utf8proc_category_t Category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

}  // namespace

Utf8Sequence ReadUtf8Sequence(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const LeadByte lead = Classify(at(0));
  if (lead.size == 0) return {Utf8Form::kIllFormed, 1};
  if (lead.size == 1) return {Utf8Form::kWellFormed, 1};
  if (bytes.size() == 1) return {Utf8Form::kTruncated, 1};
  if (at(1) < lead.second_min || at(1) > lead.second_max) return {Utf8Form::kIllFormed, 1};
  for (size_t i = 2; i < lead.size; ++i) {
    if (i == bytes.size()) return {Utf8Form::kTruncated, i};
    if (!IsContinuation(at(i))) return {Utf8Form::kIllFormed, i};
  }
  return {Utf8Form::kWellFormed, lead.size};
}

bool IsUtf8(std::string_view bytes) {
  while (true) {
    bytes.remove_prefix(AsciiPrefix(bytes));
    if (bytes.empty()) return true;
    const Utf8Sequence sequence = ReadUtf8Sequence(bytes);
    if (sequence.form != Utf8Form::kWellFormed) return false;
    bytes.remove_prefix(sequence.size);
  }
}

bool IsAscii(std::string_view bytes) { return AsciiPrefix(bytes) == bytes.size(); }

std::string ReplaceIllFormed(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + 16);
  while (!bytes.empty()) {
    const Utf8Sequence sequence = ReadUtf8Sequence(bytes);
    out += sequence.form == Utf8Form::kWellFormed ? bytes.substr(0, sequence.size)
                                                  : kReplacementCharacter;
    bytes.remove_prefix(sequence.size);
  }
  return out;
}

char32_t NextChar(std::string_view text, size_t* pos) {
  const auto at = [&](size_t i) -> char32_t { return static_cast<unsigned char>(text[*pos + i]); };
  const char32_t lead = at(0);
  if (lead < 0x80) return *pos += 1, lead;
  char32_t c;
  if (lead < 0xE0) {
    c = (lead & 0x1F) << 6 | (at(1) & 0x3F);
    *pos += 2;
  } else if (lead < 0xF0) {
    c = (lead & 0x0F) << 12 | (at(1) & 0x3F) << 6 | (at(2) & 0x3F);
    *pos += 3;
  } else {
    c = (lead & 0x07) << 18 | (at(1) & 0x3F) << 12 | (at(2) & 0x3F) << 6 | (at(3) & 0x3F);
    *pos += 4;
  }
  return c;
}

size_t StartOfCharBefore(std::string_view text, size_t pos) {
  do {
    --pos;
  } while (pos > 0 && IsContinuation(static_cast<unsigned char>(text[pos])));
  return pos;
}

char32_t CharBefore(std::string_view text, size_t pos) {
  size_t start = StartOfCharBefore(text, pos);
  return NextChar(text, &start);
}

void AppendUtf8(char32_t c, std::string* out) {
  utf8proc_uint8_t buffer[4];
  const utf8proc_ssize_t size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), buffer);
  out->append(reinterpret_cast<const char*>(buffer), static_cast<size_t>(size));
}

bool IsWhiteSpace(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || c == ' ';
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsNumeric(char32_t c) {
  const auto category = Category(c);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool IsMark(char32_t c) {
  const auto category = Category(c);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool IsWordChar(char32_t c) {
  const auto category = Category(c);
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) ||
         category == UTF8PROC_CATEGORY_PC;
}

bool IsPunctuation(char32_t c) {
  if (c < 0x80)
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
           (c >= 123 && c <= 126);
  const auto category = Category(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

}  // namespace skein::engine
