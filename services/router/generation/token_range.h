// Token ids that clients give have to be of the model's vocabulary.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/openai/api_error.h"

namespace skein::services {

// 400 that names `param` and the first token that is not below `vocab_size`.
openai::MaybeError CheckTokenRange(int64_t vocab_size, const std::string& param,
                                   const std::vector<int32_t>& tokens);

}  // namespace skein::services
