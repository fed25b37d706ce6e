#include "services/worker/decode/decode_service.h"

#include <utility>

#include "services/codec/unary.h"

namespace skein::services {
namespace {

PermitGate::Shown ShownBy(const grpc::CallbackServerContext& context) {
  const auto& metadata = context.client_metadata();
  const auto permit = metadata.find(kPermitMetadata);
  return {.permit = permit == metadata.end()
                        ? std::string()
                        : std::string(permit->second.data(), permit->second.size()),
          .from = HostOfPeer(context.peer())};
}

// For Unary's pass_on: nothing is left to do.
template <typename Call>
bool Answered(const Call& call, const absl::Status& status) {
  call.reactor->Finish(ToGrpc(status));
  return true;
}

}  // namespace

template <typename Request, typename Response, typename PassOn>
grpc::ServerUnaryReactor* DecodeService::GoOn(grpc::CallbackServerContext* context,
                                              const Request& request, Response* response,
                                              PassOn pass_on) {
  return Unary(context, request, response, [&](auto decoded, auto call) {
    const absl::Status permitted = shell_->permits()->GoOn(decoded, ShownBy(*context));
    if (!permitted.ok()) return Answered(call, permitted);
    return pass_on(std::move(decoded), call);
  });
}

grpc::ServerUnaryReactor* DecodeService::OpenTransfer(grpc::CallbackServerContext* context,
                                                      const v1::OpenTransferRequest* request,
                                                      v1::OpenTransferResponse* response) {
  return Unary(context, *request, response, [&](auto decoded, auto call) {
    const PermitGate::Shown shown = {request->permit(), HostOfPeer(context->peer())};
    const absl::Status permitted = shell_->permits()->Open(&decoded, shown);
    if (!permitted.ok()) return Answered(call, permitted);
    return shell_->OpenTransfer(std::move(decoded), call);
  });
}

grpc::ServerUnaryReactor* DecodeService::Renew(grpc::CallbackServerContext* context,
                                               const v1::RenewRequest* request,
                                               v1::RenewResponse* response) {
  return GoOn(context, *request, response,
              [this](auto decoded, auto call) { return shell_->Renew(std::move(decoded), call); });
}

grpc::ServerUnaryReactor* DecodeService::AcquireStagingBuffer(
    grpc::CallbackServerContext* context, const v1::AcquireStagingBufferRequest* request,
    v1::AcquireStagingBufferResponse* response) {
  return GoOn(context, *request, response, [this](auto decoded, auto call) {
    return shell_->AcquireStagingBuffer(decoded, call);
  });
}

grpc::ServerUnaryReactor* DecodeService::TakePart(grpc::CallbackServerContext* context,
                                                  const v1::TakePartRequest* request,
                                                  v1::TakePartResponse* response) {
  return GoOn(context, *request, response, [this](auto decoded, auto call) {
    return shell_->TakePart(std::move(decoded), call);
  });
}

grpc::ServerUnaryReactor* DecodeService::ReleaseStagingBuffer(
    grpc::CallbackServerContext* context, const v1::ReleaseStagingBufferRequest* request,
    v1::ReleaseStagingBufferResponse* response) {
  return GoOn(context, *request, response, [this](auto decoded, auto call) {
    return shell_->ReleaseStagingBuffer(decoded, call);
  });
}

grpc::ServerUnaryReactor* DecodeService::Commit(grpc::CallbackServerContext* context,
                                                const v1::CommitRequest* request,
                                                v1::CommitResponse* response) {
  return GoOn(context, *request, response,
              [this](auto decoded, auto call) { return shell_->Commit(std::move(decoded), call); });
}

grpc::ServerUnaryReactor* DecodeService::Abort(grpc::CallbackServerContext* context,
                                               const v1::AbortRequest* request,
                                               v1::AbortResponse*) {
  return Notice(context, *request, [&](auto decoded, auto* call) {
    const absl::Status permitted = shell_->permits()->Abort(&decoded, ShownBy(*context));
    if (!permitted.ok()) {
      call->Finish(ToGrpc(permitted));
      return true;
    }
    return shell_->Abort(std::move(decoded), call);
  });
}

grpc::ServerBidiReactor<v1::TokenStreamRequest, v1::TokenBatch>* DecodeService::StreamTokens(
    grpc::CallbackServerContext* context) {
  return shell_->OpenTokenStream(context);
}

}  // namespace skein::services
