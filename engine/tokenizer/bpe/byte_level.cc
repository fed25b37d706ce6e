#include "engine/tokenizer/bpe/byte_level.h"

#include <array>
#include <cstdint>

#include "engine/tokenizer/text/utf8.h"

namespace skein::engine {
namespace {

constexpr char32_t kAlphabetEnd = 0x100 + 68;  // 68 bytes are not printable in Latin-1

constexpr bool StandsForItself(int b) {
  return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
}

// The byte a character stands for, -1 for none.
constexpr std::array<int16_t, kAlphabetEnd> MakeByteOfChar() {
  std::array<int16_t, kAlphabetEnd> byte_of_char{};
  for (auto& b : byte_of_char) b = -1;
  int next = 0x100;
  for (int b = 0; b < 256; ++b)
    byte_of_char[StandsForItself(b) ? b : next++] = static_cast<int16_t>(b);
  return byte_of_char;
}

constexpr auto kByteOfChar = MakeByteOfChar();

}  // namespace

std::optional<std::string> ByteLevelBytes(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (size_t pos = 0; pos < token.size();) {
    const char32_t c = NextChar(token, &pos);
    if (c >= kAlphabetEnd || kByteOfChar[c] < 0) return std::nullopt;
    bytes += static_cast<char>(kByteOfChar[c]);
  }
  return bytes;
}

}  // namespace skein::engine
