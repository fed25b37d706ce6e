// skeinctl keys new: makes an API key.
#pragma once

#include <string>

#include "services/flags/flags.h"

namespace skein::services {

struct KeysFlags {
  std::string action;
  std::string tenant;
  std::string id;

  void Register(FlagSet* set);
};

// Prints the key on stderr, once and for its user, and on stdout the line for the router's file,
// which is no secret. Exit code: 0.
int RunKeys(const KeysFlags& flags);

// "sk-" and 43 characters: 256 random bits, as base64 for URLs.
std::string NewKey();
// The line of --api-key-file for it.
std::string NewKeyLine(const std::string& key, const KeysFlags& flags);

}  // namespace skein::services
