// The first half of a unary handler: decode, pass on, or answer at once.
#pragma once

#include <utility>

#include "services/codec/codec.h"
#include "services/rpc/calls.h"
#include "services/rpc/status_map.h"

namespace skein::services {

// Decodes `request` and gives it with the call to `pass_on`, which returns false when the inbox is
// full. A malformed request is answered INVALID_ARGUMENT, a full inbox RESOURCE_EXHAUSTED, both
// here and at once.
template <typename Request, typename Response, typename PassOn>
grpc::ServerUnaryReactor* Unary(grpc::CallbackServerContext* context, const Request& request,
                                Response* response, PassOn pass_on) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto decoded = FromProto(request);
  if (!decoded.ok()) {
    reactor->Finish(ToGrpc(decoded.status()));
  } else if (!pass_on(*std::move(decoded), typename Calls<Response>::Call{reactor, response})) {
    reactor->Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, "the inbox is full"});
  }
  return reactor;
}

// The same for messages to which the core has no answer: `pass_on` gets the call to finish when the
// core has heard of it. This gives back-pressure to the caller.
template <typename Request, typename PassOn>
grpc::ServerUnaryReactor* Notice(grpc::CallbackServerContext* context, const Request& request,
                                 PassOn pass_on) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto decoded = FromProto(request);
  if (!decoded.ok()) {
    reactor->Finish(ToGrpc(decoded.status()));
  } else if (!pass_on(*std::move(decoded), reactor)) {
    reactor->Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, "the inbox is full"});
  }
  return reactor;
}

}  // namespace skein::services
