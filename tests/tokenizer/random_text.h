// Valid UTF-8 that is difficult for tokenizers: scripts, marks, emoji sequences, runs of white
// space, control characters.
#pragma once

#include <random>
#include <string>

namespace skein::tests {

std::string RandomText(std::mt19937_64* random);

// Unicode normalisation form C.
std::string Nfc(const std::string& text);

}  // namespace skein::tests
