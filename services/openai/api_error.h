// The error a client gets when its request is refused.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace skein::services::openai {

struct ApiError {
  int status = 400;  // of HTTP
  std::string message;
  std::string param;  // the parameter at fault: "temperature", "messages[2].content"; "" if none
  std::string
      code;  // "invalid_type", "model_not_found", "context_length_exceeded", ...; "" if none
};

// Functions that can fail return this: nullopt is success.
using MaybeError = std::optional<ApiError>;

inline ApiError InvalidParam(std::string param, std::string message,
                             std::string code = "invalid_value") {
  return {400, std::move(message), std::move(param), std::move(code)};
}

// A parameter this server knows and does not serve.
inline ApiError Unsupported(std::string param, const std::string& why = {}) {
  std::string message = "Unsupported parameter: '" + param + "'" + (why.empty() ? "." : ": " + why);
  return {400, std::move(message), std::move(param), "unsupported_parameter"};
}

}  // namespace skein::services::openai
