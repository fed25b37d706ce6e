// The only place that converts absl::Status to gRPC and HTTP. Codes carry the retry meaning:
// UNAVAILABLE: retry elsewhere. RESOURCE_EXHAUSTED: back off. FAILED_PRECONDITION: stale epoch.
// INVALID_ARGUMENT: the caller's fault. DEADLINE_EXCEEDED: stop.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace grpc {
class Status;
}
namespace skein::v1 {
class Failure;
}

namespace skein::services {

// A server's answer. gRPC itself also produces UNAVAILABLE and DEADLINE_EXCEEDED. Those from a
// server carry a google.rpc.Status as details, so the caller can tell the two apart.
grpc::Status ToGrpc(const absl::Status& status);

// The result of a call to `peer` ("decode-worker"). The peer's own error stays as it is. A
// transport failure becomes "the decode-worker cannot be reached" or "... did not answer in time",
// because gRPC's text contains addresses that clients must not see. Log `status` for the details.
absl::Status FromGrpc(const grpc::Status& status, std::string_view peer);

// Whether gRPC itself produced this status: the peer was not reached or did not answer.
bool IsTransportFailure(const grpc::Status& status);

// UNAVAILABLE: the orchestrator that was called does not lead its cell. `leader`: HOST:PORT of the
// one that does; empty: it is not known. Survives ToGrpc and FromGrpc.
absl::Status StandbyError(const std::string& leader);
// What StandbyError was told; nullopt: it is another status.
std::optional<std::string> LeaderOf(const absl::Status& status);

void ToProto(const absl::Status& status, v1::Failure* failure);
// A failure whose code is OK or unknown becomes INTERNAL, never success.
absl::Status FromProto(const v1::Failure& failure);

// 400, 404, 409, 429, 499, 500, 501, 503, 504 …
int HttpCode(absl::StatusCode code);

}  // namespace skein::services
