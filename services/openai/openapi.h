// The API's description as OpenAPI: /openapi.json.
#pragma once

#include <string>

namespace skein::services::openai {

// An OpenAPI 3.1 document.
std::string OpenApiJson();

}  // namespace skein::services::openai
