// JSON Schemas of the API's answers, with their names in /openapi.json.
#pragma once

#include <string_view>

#include "nlohmann/json_fwd.hpp"
#include "services/openai/api_description.h"

namespace skein::services::openai {

// An object: schemas by name.
nlohmann::ordered_json AnswerSchemas();

// The schema's name; "": no schema.
std::string_view SchemaName(Body body);
// The same for the events of a streamed answer.
std::string_view EventSchemaName(Body body);

}  // namespace skein::services::openai
