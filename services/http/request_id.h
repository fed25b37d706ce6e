// The id of one request in answers and logs.
#pragma once

#include <string>
#include <vector>

#include "services/http/message.h"

namespace skein::services::http {

// The client's X-Request-Id, else its X-Correlation-ID, if it is 1 to 128 printable ASCII
// characters without spaces; else "req-" and 32 random hexadecimal digits.
std::string RequestIdOf(const std::vector<Header>& headers);

// Whether a client's id may be used in headers and logs as it is.
bool IsPlainName(std::string_view name);

}  // namespace skein::services::http
