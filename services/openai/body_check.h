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

// Members of a body that are worth a note but no error.
struct BodyNotes {
  int64_t unknown = 0;                // members without a row
  std::vector<std::string> warnings;  // a sentence of printable ASCII for each of the first eight
};

// `body` is an object. Afterwards every member that has a row is of the row's type and within its
// range, nothing refused is there, and what is required is. A member without a row is an error with
// `strict`; otherwise it is noted.
MaybeError CheckBody(std::span<const Parameter> rows, const nlohmann::ordered_json& body,
                     bool strict, BodyNotes* notes);

}  // namespace skein::services::openai
