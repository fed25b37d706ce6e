// The first half of a unary handler: decode, then pass on or answer at once.
#pragma once

#include <utility>

#include "services/codec/codec.h"
#include "services/rpc/calls.h"
#include "services/rpc/credentials.h"
#include "services/rpc/status_map.h"

namespace skein::services {

// Decodes `request` and passes it with the call to `pass_on`, which returns false when the inbox is
// full. Answers at once: INVALID_ARGUMENT for a malformed request, RESOURCE_EXHAUSTED for a full
// inbox, UNAUTHENTICATED as CheckCaller says.
template <typename Request, typename Response, typename PassOn>
grpc::ServerUnaryReactor* Unary(grpc::CallbackServerContext* context, const Request& request,
                                Response* response, PassOn pass_on) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (absl::Status caller = CheckCaller(*context); !caller.ok()) {
    reactor->Finish(ToGrpc(caller));
    return reactor;
  }
  auto decoded = FromProto(request);
  if (!decoded.ok()) {
    reactor->Finish(ToGrpc(decoded.status()));
  } else if (!pass_on(*std::move(decoded), typename Calls<Response>::Call{reactor, response})) {
    reactor->Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, "the inbox is full"});
  }
  return reactor;
}

// The same for messages without an answer from the core: `pass_on` gets the call and finishes it
// when the core has handled the message. This gives back-pressure to the caller.
template <typename Request, typename PassOn>
grpc::ServerUnaryReactor* Notice(grpc::CallbackServerContext* context, const Request& request,
                                 PassOn pass_on) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (absl::Status caller = CheckCaller(*context); !caller.ok()) {
    reactor->Finish(ToGrpc(caller));
    return reactor;
  }
  auto decoded = FromProto(request);
  if (!decoded.ok()) {
    reactor->Finish(ToGrpc(decoded.status()));
  } else if (!pass_on(*std::move(decoded), reactor)) {
    reactor->Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, "the inbox is full"});
  }
  return reactor;
}

}  // namespace skein::services
