#include "services/router/api/api_error_map.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/base/time.h"
#include "services/http/error.h"
#include "services/rpc/status_map.h"

namespace skein::services {
namespace {

const char* CodeOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kResourceExhausted:
      return "rate_limit_exceeded";
    case absl::StatusCode::kUnavailable:
      return "unavailable";
    case absl::StatusCode::kDeadlineExceeded:
      return "deadline_exceeded";
    case absl::StatusCode::kNotFound:
      return "model_not_found";
    case absl::StatusCode::kInvalidArgument:
      return "invalid_value";
    default:
      return "internal_error";
  }
}

std::string_view DroppedWhy(std::string_view code, bool begun) {
  if (code == "rate_limit_exceeded" || code == "too_many_connections") return "saturated";
  if (code == "too_many_wrong_keys") return "held-off";
  if (code == "unavailable") return begun ? "instance-lost" : "no-endpoints";
  if (code == "draining") return "shutting-down";
  if (code == "deadline_exceeded") return "ttl-expired";
  return {};
}

}  // namespace

openai::ApiError ErrorFrom(const absl::Status& status) {
  openai::ApiError error;
  error.status = HttpCode(status.code());
  error.message = std::string(status.message().data(), status.message().size());
  if (error.message.empty()) error.message = "The request could not be served.";
  error.code = CodeOf(status.code());
  return error;
}

void AddDroppedReason(bool begun, http::Response* response) {
  const std::string_view why = DroppedWhy(response->error_code, begun);
  constexpr char kOurs[] = "X-Skein-Dropped-Reason";
  if (why.empty() || !http::FindHeader(response->headers, kOurs).empty()) return;
  const std::string reason = std::string(begun ? "evicted-" : "rejected-").append(why);
  response->headers.push_back({kOurs, reason});
  response->headers.push_back({"X-LLM-D-Request-Dropped-Reason", reason});
}

http::Response ToResponse(const openai::ApiError& error, int64_t retry_after_us) {
  http::Response response =
      http::ErrorResponse(error.status, error.message, error.param, error.code);
  const bool may_pass_later = retry_after_us != scheduler::kNever;
  if ((error.status == 429 || error.status == 503) && may_pass_later) {
    const int64_t seconds = std::max<int64_t>(1, (retry_after_us + 999'999) / 1'000'000);
    response.headers.push_back({"Retry-After", std::to_string(seconds)});
  }
  return response;
}

std::string RefusalKind(int status, std::string_view code) {
  return absl::StrCat("refused, ", status, code.empty() ? "" : " ", std::string(code));
}

}  // namespace skein::services
