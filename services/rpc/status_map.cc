#include "services/rpc/status_map.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/support/status.h"
#include "proto/common.pb.h"

namespace skein::services {
namespace {

// gRPC and absl use the same numbers for their codes (google.rpc.Code).
absl::StatusCode CodeFrom(int code) {
  if (code <= 0 || code > static_cast<int>(absl::StatusCode::kUnauthenticated)) {
    return absl::StatusCode::kInternal;
  }
  return static_cast<absl::StatusCode>(code);
}

// Of an absl::Status; its value is the leader's endpoint.
constexpr char kStandbyPayload[] = "skein/standby";

bool GrpcGivesItToo(grpc::StatusCode code) {
  return code == grpc::StatusCode::UNAVAILABLE || code == grpc::StatusCode::DEADLINE_EXCEEDED;
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto code = static_cast<grpc::StatusCode>(status.code());
  if (!GrpcGivesItToo(code)) return {code, std::string(status.message())};
  v1::Failure details;  // google.rpc.Status on the wire
  ToProto(status, &details);
  return {code, std::string(status.message()), details.SerializeAsString()};
}

bool IsTransportFailure(const grpc::Status& status) {
  return GrpcGivesItToo(status.error_code()) && status.error_details().empty();
}

absl::Status FromGrpc(const grpc::Status& status, std::string_view peer) {
  if (status.ok()) return absl::OkStatus();
  const absl::StatusCode code = CodeFrom(status.error_code());
  if (!IsTransportFailure(status)) {
    absl::Status own(code, status.error_message());
    v1::Failure details;
    if (GrpcGivesItToo(status.error_code()) && details.ParseFromString(status.error_details()) &&
        details.has_standby()) {
      own.SetPayload(kStandbyPayload, absl::Cord(details.standby().leader()));
    }
    return own;
  }
  return {code, absl::StrCat("the ", absl::string_view(peer.data(), peer.size()),
                             code == absl::StatusCode::kUnavailable ? " cannot be reached"
                                                                    : " did not answer in time")};
}

absl::Status StandbyError(const std::string& leader) {
  absl::Status status = absl::UnavailableError(
      leader.empty() ? "this orchestrator stands by; it is not known which one leads"
                     : absl::StrCat("this orchestrator stands by; the one at ", leader, " leads"));
  status.SetPayload(kStandbyPayload, absl::Cord(leader));
  return status;
}

std::optional<std::string> LeaderOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kStandbyPayload);
  if (!payload.has_value()) return std::nullopt;
  return std::string(*payload);
}

void ToProto(const absl::Status& status, v1::Failure* failure) {
  failure->set_code(static_cast<int>(status.code()));
  failure->set_message(std::string(status.message()));
  if (const auto leader = LeaderOf(status)) failure->mutable_standby()->set_leader(*leader);
}

absl::Status FromProto(const v1::Failure& failure) {
  return {CodeFrom(failure.code()), failure.message()};
}

int HttpCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kCancelled:
      return 499;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kFailedPrecondition:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

}  // namespace skein::services
