#include "services/http/request_id.h"

#include <algorithm>

#include "services/base/random_bits.h"

namespace skein::services::http {

bool IsPlainName(std::string_view name) {
  return !name.empty() && name.size() <= 128 &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > 32 && c < 127; });
}

std::string RequestIdOf(const std::vector<Header>& headers) {
  for (const char* name : {"X-Request-Id", "X-Correlation-ID"}) {
    const std::string_view given = FindHeader(headers, name);
    if (IsPlainName(given)) return std::string(given);
  }
  return "req-" + RandomHex();
}

}  // namespace skein::services::http
