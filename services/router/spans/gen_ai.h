// Words of OpenTelemetry's conventions for generative AI
// (open-telemetry/semantic-conventions-genai, docs/gen-ai).
#pragma once

#include <string_view>

#include "services/openai/response.h"

namespace skein::services {

inline constexpr char kProviderName[] = "skein";

// gen_ai.operation.name.
inline std::string_view OperationOf(openai::Kind kind) {
  return kind == openai::Kind::kChat ? "chat" : "text_completion";
}

}  // namespace skein::services
