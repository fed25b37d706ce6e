// Token ids that clients give have to be of the model's vocabulary.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/openai/api_error.h"
#include "services/router/model.h"

namespace skein::services {

// 400 that names `param` and the first token outside of the vocabulary.
openai::MaybeError CheckTokenRange(const ServedModel& model, const std::string& param,
                                   const std::vector<int32_t>& tokens);

}  // namespace skein::services
