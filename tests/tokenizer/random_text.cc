#include "tests/tokenizer/random_text.h"

#include <utf8proc.h>

#include <cstdlib>
#include <iterator>

#include "engine/tokenizer/text/utf8.h"

namespace skein::tests {
namespace {

struct Range {
  char32_t first, last;
};

// All are equally likely.
constexpr Range kRanges[] = {
    {'a', 'z'},         {'A', 'Z'},         {'0', '9'},         {0x21, 0x2F},
    {0, 0x1F},          {0x80, 0xFF},       {0x300, 0x36F},     {0x370, 0x3FF},
    {0x400, 0x52F},     {0x5D0, 0x6FF},     {0x900, 0x97F},     {0xE00, 0xE5B},
    {0x1100, 0x11FF},   {0x1780, 0x17F9},   {0x2000, 0x206F},   {0x2190, 0x22FF},
    {0x3040, 0x30FF},   {0x4E00, 0x9FFF},   {0xAC00, 0xD7A3},   {0xE000, 0xF8FF},
    {0xF900, 0xFAFF},   {0xFE00, 0xFE0F},   {0xFF00, 0xFFFF},   {0x1D165, 0x1D1E8},
    {0x1F300, 0x1FAFF}, {0xE0001, 0xE01EF}, {0x10000, 0x10FFFF}};

constexpr const char* kPhrases[] = {"Hello",
                                    " world",
                                    " the",
                                    "'ll",
                                    "'RE",
                                    "12345",
                                    "\r\n",
                                    "\n\n",
                                    "    ",
                                    "\t",
                                    " ",
                                    "  \n  ",
                                    "👩‍👩‍👧",
                                    "🏳️‍🌈",
                                    "e\u0301",
                                    "¿Qué?",
                                    "नमस्ते",
                                    "\u2028",
                                    "\u00a0",
                                    "\u180e",
                                    "\u200b",
                                    "\ufeff",
                                    "ﬁ",
                                    "Å",
                                    "가\u11a8",
                                    "<0x41>",
                                    "<|",
                                    "|>",
                                    "</s",
                                    "…",
                                    "int main() {\n\treturn 0;\n}\n",
                                    "\u0344",
                                    "\u0f73"};

size_t Below(size_t bound, std::mt19937_64* random) { return (*random)() % bound; }

void AppendRun(std::mt19937_64* random, std::string* text) {
  const Range range = kRanges[Below(std::size(kRanges), random)];
  for (size_t n = 1 + Below(6, random); n > 0; --n) {
    const char32_t c = range.first + Below(range.last - range.first + 1, random);
    if (c < 0xD800 || c > 0xDFFF) engine::AppendUtf8(c, text);
  }
}

}  // namespace

std::string RandomText(std::mt19937_64* random) {
  std::string text;
  for (size_t n = Below(24, random); n > 0; --n) {
    if (Below(2, random)) {
      text += kPhrases[Below(std::size(kPhrases), random)];
    } else {
      AppendRun(random, &text);
    }
  }
  // A literal of SentencePiece's space cannot be reproduced by a SentencePiece tokenizer.
  for (size_t at; (at = text.find("\u2581")) != std::string::npos;) text.erase(at, 3);
  return text;
}

std::string Nfc(const std::string& text) {
  utf8proc_uint8_t* raw = nullptr;
  const auto size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &raw,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (size < 0) return "?";
  std::string out(reinterpret_cast<char*>(raw), static_cast<size_t>(size));
  std::free(raw);
  return out;
}

}  // namespace skein::tests
