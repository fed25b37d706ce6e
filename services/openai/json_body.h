// Parses JSON from an untrusted client and keeps the order of keys.
#pragma once

#include <string_view>

#include "nlohmann/json_fwd.hpp"
#include "services/openai/api_error.h"

namespace skein::services::openai {

inline constexpr int kJsonDepthMax = 64;

// Strict RFC 8259: valid UTF-8, one value, numbers that fit a double. Refuses nesting beyond
// kJsonDepthMax; the last of duplicate keys wins. Linear in the size of `text`. No exceptions.
MaybeError ParseJson(std::string_view text, nlohmann::ordered_json* json);

}  // namespace skein::services::openai
