#include "services/base/status_map.h"

#include "grpcpp/support/status.h"
#include "gtest/gtest.h"
#include "proto/common.pb.h"

namespace skein::services {
namespace {

TEST(StatusMap, EveryCodeSurvivesGrpcAndProto) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    EXPECT_EQ(FromGrpc(ToGrpc(status)), status);
    v1::Failure failure;
    ToProto(status, &failure);
    EXPECT_EQ(FromProto(failure), status);
    EXPECT_GE(HttpCode(status.code()), 400);
  }
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
