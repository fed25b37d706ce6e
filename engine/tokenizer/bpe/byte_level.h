// The alphabet of byte-level BPE: every byte has a printable character that stands for it in the
// vocabulary (GPT-2's encoder.py, bytes_to_unicode): printable Latin-1 characters stand for
// themselves, the other bytes take U+0100, U+0101, …
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace skein::engine {

// The bytes a token spelled in the alphabet stands for; nothing if a character is outside it.
// REQUIRES: valid UTF-8.
std::optional<std::string> ByteLevelBytes(std::string_view token);

}  // namespace skein::engine
