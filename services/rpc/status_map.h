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

// What a server answers. UNAVAILABLE and DEADLINE_EXCEEDED, which gRPC also gives in its own name,
// carry a google.rpc.Status as details, which is how the caller knows them for the server's word.
grpc::Status ToGrpc(const absl::Status& status);

// What a call to `peer` ("decode-worker") ended with. The peer's word stays as it is; for a failure
// of the transport, about which gRPC's words name addresses that no client may see, it says only
// "the decode-worker cannot be reached" or "… did not answer in time". Log `status` for the rest.
absl::Status FromGrpc(const grpc::Status& status, std::string_view peer);

// Whether gRPC gave this status in its own name: the peer was not reached or did not answer.
bool IsTransportFailure(const grpc::Status& status);

void ToProto(const absl::Status& status, v1::Failure* failure);
// A failure whose code is OK or no known code becomes INTERNAL, never success.
absl::Status FromProto(const v1::Failure& failure);

// 400, 404, 409, 429, 499, 500, 501, 503, 504 …
int HttpCode(absl::StatusCode code);

}  // namespace skein::services
