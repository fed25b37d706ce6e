// A JSON text from an untrusted client, as a document that keeps the order of keys.
#pragma once

#include <string_view>

#include "nlohmann/json_fwd.hpp"
#include "services/openai/api_error.h"

namespace skein::services::openai {

inline constexpr int kJsonDepthMax = 64;

// RFC 8259, strictly: valid UTF-8, one value, numbers that a double holds. Nesting beyond
// kJsonDepthMax is refused; of duplicate keys the last one wins. Linear in the size of `text`
// whatever it holds. No exceptions.
MaybeError ParseJson(std::string_view text, nlohmann::ordered_json* json);

}  // namespace skein::services::openai
