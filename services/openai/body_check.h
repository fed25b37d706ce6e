// Checks a request's body against its rows of the API's description.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "nlohmann/json_fwd.hpp"
#include "services/openai/api_description.h"
#include "services/openai/api_error.h"

namespace skein::services::openai {

// Members of a body that deserve a note but no error.
struct BodyNotes {
  int64_t unknown = 0;                // members without a row
  std::vector<std::string> warnings;  // a sentence of printable ASCII for each of the first eight
};

// `body` is an object. On success, every member with a row has the row's type and range, no refused
// member is present, and all required ones are. A member without a row is an error if `strict`;
// otherwise it is noted.
MaybeError CheckBody(std::span<const Parameter> rows, const nlohmann::ordered_json& body,
                     bool strict, BodyNotes* notes);

}  // namespace skein::services::openai
