#include "services/router/jobs/list_query.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/http/error.h"
#include "services/http/message.h"

namespace skein::services {

openai::MaybeError ParseListQuery(std::string_view text, const std::vector<std::string>& more,
                                  int64_t limit_max, ListQuery* query) {
  std::vector<std::pair<std::string, std::string>> fields;
  if (!http::ParseQuery(text, &fields)) {
    return openai::ApiError{400, "The URL's query is malformed.", "", "bad_request"};
  }
  for (auto& [name, value] : fields) {
    if (!http::IsUtf8(name) || !http::IsUtf8(value)) {
      return openai::ApiError{400, "The URL's query is not valid UTF-8.", "", "bad_request"};
    }
    if (name == "after") {
      query->after = std::move(value);
    } else if (name == "limit") {
      const char* const end = value.data() + value.size();
      const auto [at, error] = std::from_chars(value.data(), end, query->limit);
      if (error != std::errc() || at != end || query->limit < 1 || query->limit > limit_max) {
        return openai::InvalidParam(
            "limit", absl::StrCat("Invalid value for 'limit': expected an integer from 1 to ",
                                  limit_max, ", got '", value, "'."));
      }
    } else if (std::find(more.begin(), more.end(), name) != more.end()) {
      query->more[name] = std::move(value);
    } else {
      return openai::InvalidParam(name, "Unknown parameter: '" + name + "'.", "unknown_parameter");
    }
  }
  return std::nullopt;
}

}  // namespace skein::services
