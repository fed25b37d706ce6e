#include "services/rpc/status_map.h"

#include "grpcpp/support/status.h"
#include "gtest/gtest.h"
#include "proto/common.pb.h"

namespace skein::services {
namespace {

TEST(StatusMap, EveryCodeSurvivesGrpcAndProto) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    EXPECT_EQ(FromGrpc(ToGrpc(status), "worker"), status);
    v1::Failure failure;
    ToProto(status, &failure);
    EXPECT_EQ(FromProto(failure), status);
    EXPECT_GE(HttpCode(status.code()), 400);
  }
}

TEST(StatusMap, WhatGrpcSaysOfATransportIsNotPassedOn) {
  const grpc::Status refused(grpc::StatusCode::UNAVAILABLE, "ipv4:10.0.0.7:7201: refused");
  EXPECT_EQ(FromGrpc(refused, "decode-worker"),
            absl::UnavailableError("the decode-worker cannot be reached"));
  const grpc::Status late(grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded");
  EXPECT_EQ(FromGrpc(late, "orchestrator"),
            absl::DeadlineExceededError("the orchestrator did not answer in time"));
}

TEST(StatusMap, AStandbyNamesTheLeader) {
  for (const std::string leader : {"", "host:7100"}) {
    const absl::Status came = FromGrpc(ToGrpc(StandbyError(leader)), "orchestrator");
    EXPECT_TRUE(absl::IsUnavailable(came)) << came;
    EXPECT_EQ(LeaderOf(came), leader);
    EXPECT_FALSE(IsTransportFailure(ToGrpc(StandbyError(leader))));
  }
  const absl::Status stops = absl::UnavailableError("the orchestrator is stopping");
  EXPECT_EQ(LeaderOf(FromGrpc(ToGrpc(stops), "orchestrator")), std::nullopt);
  const grpc::Status refused(grpc::StatusCode::UNAVAILABLE, "ipv4:10.0.0.7:7201: refused");
  EXPECT_EQ(LeaderOf(FromGrpc(refused, "orchestrator")), std::nullopt);
}

TEST(StatusMap, AFailureIsNeverOk) {
  v1::Failure failure;
  EXPECT_EQ(FromProto(failure).code(), absl::StatusCode::kInternal);
  failure.set_code(99);
  EXPECT_EQ(FromProto(failure).code(), absl::StatusCode::kInternal);
  failure.set_code(-1);
  EXPECT_EQ(FromProto(failure).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace skein::services
