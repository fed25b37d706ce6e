// The one place where absl::Status meets gRPC and HTTP. Codes carry the retry meaning: UNAVAILABLE
// retry elsewhere, RESOURCE_EXHAUSTED back off, FAILED_PRECONDITION stale epoch, INVALID_ARGUMENT
// the caller's fault, DEADLINE_EXCEEDED stop.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace grpc {
class Status;
}
namespace skein::v1 {
class Failure;
}

namespace skein::services {

grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

void ToProto(const absl::Status& status, v1::Failure* failure);
// A failure whose code is OK or no known code becomes INTERNAL, never success.
absl::Status FromProto(const v1::Failure& failure);

// 400, 404, 409, 429, 499, 500, 501, 503, 504 …
int HttpCode(absl::StatusCode code);

// OpenAI's error "type" of an HTTP code: "invalid_request_error", "rate_limit_error",
// "server_error" …
std::string_view OpenAiErrorType(int http_code);

}  // namespace skein::services
