// The only place that chooses gRPC credentials. Plain text today; TLS will change only this file.
#pragma once

#include <memory>

#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"

namespace skein::services {

inline std::shared_ptr<grpc::ServerCredentials> ServerCredentials() {
  return grpc::InsecureServerCredentials();
}

inline std::shared_ptr<grpc::ChannelCredentials> ClientCredentials() {
  return grpc::InsecureChannelCredentials();
}

}  // namespace skein::services
