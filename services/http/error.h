// Errors as OpenAI's error object: {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <string>
#include <string_view>

#include "services/http/message.h"

namespace skein::services::http {

// `text` as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD.
std::string JsonString(std::string_view text);

bool IsUtf8(std::string_view text);

// "invalid_request_error", "rate_limit_error" (429) or "server_error" (5xx), ...
std::string_view ErrorType(int status);

// The error object only, in one line. An empty param or code becomes null.
std::string ErrorBody(int status, std::string_view message, std::string_view param = {},
                      std::string_view code = {});

Response ErrorResponse(int status, std::string_view message, std::string_view param = {},
                       std::string_view code = {});

}  // namespace skein::services::http
