// The query of OpenAI's lists: limit, after, and what a list has besides.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "services/openai/api_error.h"

namespace skein::services {

struct ListQuery {
  int64_t limit = 0;  // 0: the list's own
  std::string after;  // "": from the beginning
  std::map<std::string, std::string> more;
};

// 400 names a field that is none of these, or whose value is out of range. `limit`: 1 to
// `limit_max`.
openai::MaybeError ParseListQuery(std::string_view text, const std::vector<std::string>& more,
                                  int64_t limit_max, ListQuery* query);

}  // namespace skein::services
