// JSON Schemas of the API's answers, by the names that /openapi.json gives them.
#pragma once

#include <string_view>

#include "nlohmann/json_fwd.hpp"
#include "services/openai/api_description.h"

namespace skein::services::openai {

// An object: schemas by name.
nlohmann::ordered_json AnswerSchemas();

// The schema's name; "" for what has none.
std::string_view SchemaName(Body body);
// The same of a streamed answer's events.
std::string_view EventSchemaName(Body body);

}  // namespace skein::services::openai
