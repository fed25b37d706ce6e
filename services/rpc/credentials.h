// The only place that chooses gRPC credentials: plain text, or TLS as the process's flags say
// (services/tls/security.h).
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "grpcpp/grpcpp.h"
#include "services/tls/roles.h"
#include "services/tls/security.h"

namespace skein::services {

// With TLS, who may make a call is checked before its handler runs: with --mtls by the roles of the
// caller's certificate (caller_policy.h), else by the cluster's token, if there is one. A refusal
// is PERMISSION_DENIED or UNAUTHENTICATED and says why.
std::shared_ptr<grpc::ServerCredentials> ServerCredentials(
    const tls::Security& security = tls::ProcessSecurity());

// A channel to `endpoint`, "HOST:PORT". With TLS the server's certificate must name one of the
// roles `wanted`; where it names no role, or none is wanted (as of etcd), it must be for the host.
// With --mtls it must name a role that is wanted. A mismatch fails the handshake: UNAVAILABLE, and
// its text names both. Each call carries the cluster's token, if there is one and `wanted` is not
// empty.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& endpoint, tls::RoleSet wanted,
                                           const grpc::ChannelArguments& arguments,
                                           const tls::Security& security = tls::ProcessSecurity());

// Of a call that a handler begins. In plain text nothing has checked the token before the handler:
// UNAUTHENTICATED if it is not there, or is wrong. OK with TLS, and without a token.
absl::Status CheckCaller(const grpc::CallbackServerContext& context,
                         const tls::Security& security = tls::ProcessSecurity());

// The roles that the caller's certificate names; all of them without --mtls.
tls::RoleSet CallerRoles(const grpc::CallbackServerContext& context,
                         const tls::Security& security = tls::ProcessSecurity());

}  // namespace skein::services
