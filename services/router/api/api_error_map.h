// From what went wrong inside to what the client is told.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "services/http/message.h"
#include "services/openai/api_error.h"

namespace skein::services {

openai::ApiError ErrorFrom(const absl::Status& status);

// With Retry-After for 429 and 503: `retry_after_us` rounded up, a second at least. kNever: without
// it, because the same request is refused whenever it comes.
http::Response ToResponse(const openai::ApiError& error, int64_t retry_after_us = 0);

// To an error of 429, 503 or 504 that has none yet: X-Skein-Dropped-Reason, and the same under the
// name that llm-d's clients know, X-LLM-D-Request-Dropped-Reason. "rejected-…": nothing was done,
// so another try is cheap; "evicted-…": instances had begun, and their work was thrown away.
//   saturated       a limit of requests or connections is reached
//   no-endpoints    no instance that could serve it, or no orchestrator (rejected only)
//   instance-lost   the instance that served it was lost (evicted only)
//   shutting-down   the router drains
//   ttl-expired     its deadline passed
//   tenant-limit    its tenant has reached a limit of its own (limit_answer.h)
//   held-off        its address tries API keys
void AddDroppedReason(bool begun, http::Response* response);

// What LogLimited counts a refusal's line as.
std::string RefusalKind(int status, std::string_view code);

}  // namespace skein::services
