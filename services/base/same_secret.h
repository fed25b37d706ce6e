// Compares secrets.
#pragma once

#include <cstddef>
#include <string_view>

namespace skein::services {

// Whether they are equal. Takes the same time wherever they differ: the time depends on the length
// of `given` alone.
inline bool SameSecret(std::string_view given, std::string_view secret) {
  unsigned differ = given.size() == secret.size() ? 0 : 1;
  for (size_t i = 0; i < given.size() && !secret.empty(); ++i) {
    differ |= static_cast<unsigned char>(given[i]) ^
              static_cast<unsigned char>(secret[i % secret.size()]);
  }
  return differ == 0;
}

}  // namespace skein::services
