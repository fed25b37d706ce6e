// TokenSpan: consecutive tokens of a prompt.
#pragma once

#include <cstdint>

namespace skein {

struct TokenSpan {
  int64_t position = 0;  // of the first token
  int64_t count = 0;
  bool operator==(const TokenSpan&) const = default;
};

}  // namespace skein
