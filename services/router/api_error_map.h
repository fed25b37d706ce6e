// From what went wrong inside to what the client is told.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "services/http/message.h"
#include "services/openai/api_error.h"

namespace skein::services {

openai::ApiError ErrorFrom(const absl::Status& status);

// With Retry-After for 429 and 503: `retry_after_us` rounded up, a second at least.
http::Response ToResponse(const openai::ApiError& error, int64_t retry_after_us = 0);

}  // namespace skein::services
