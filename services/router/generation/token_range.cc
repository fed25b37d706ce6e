#include "services/router/generation/token_range.h"

#include "absl/strings/str_cat.h"

namespace skein::services {

openai::MaybeError CheckTokenRange(int64_t vocab_size, const std::string& param,
                                   const std::vector<int32_t>& tokens) {
  for (const int32_t token : tokens) {
    if (token >= 0 && token < vocab_size) continue;
    return openai::InvalidParam(
        param, absl::StrCat("Invalid '", param, "': token id ", token,
                            " is out of range (vocabulary size ", vocab_size, ")."));
  }
  return std::nullopt;
}

}  // namespace skein::services
