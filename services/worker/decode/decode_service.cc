#include "services/worker/decode/decode_service.h"

#include <utility>

#include "services/codec/unary.h"

namespace skein::services {

grpc::ServerUnaryReactor* DecodeService::OpenTransfer(grpc::CallbackServerContext* context,
                                                      const v1::OpenTransferRequest* request,
                                                      v1::OpenTransferResponse* response) {
  return Unary(context, *request, response, [this](auto decoded, auto call) {
    return shell_->OpenTransfer(std::move(decoded), call);
  });
}

grpc::ServerUnaryReactor* DecodeService::Renew(grpc::CallbackServerContext* context,
                                               const v1::RenewRequest* request,
                                               v1::RenewResponse* response) {
  return Unary(context, *request, response,
               [this](auto decoded, auto call) { return shell_->Renew(std::move(decoded), call); });
}

grpc::ServerUnaryReactor* DecodeService::AcquireStagingBuffer(
    grpc::CallbackServerContext* context, const v1::AcquireStagingBufferRequest* request,
    v1::AcquireStagingBufferResponse* response) {
  return Unary(context, *request, response, [this](auto decoded, auto call) {
    return shell_->AcquireStagingBuffer(decoded, call);
  });
}

grpc::ServerUnaryReactor* DecodeService::TakePart(grpc::CallbackServerContext* context,
                                                  const v1::TakePartRequest* request,
                                                  v1::TakePartResponse* response) {
  return Unary(context, *request, response, [this](auto decoded, auto call) {
    return shell_->TakePart(std::move(decoded), call);
  });
}

grpc::ServerUnaryReactor* DecodeService::ReleaseStagingBuffer(
    grpc::CallbackServerContext* context, const v1::ReleaseStagingBufferRequest* request,
    v1::ReleaseStagingBufferResponse* response) {
  return Unary(context, *request, response, [this](auto decoded, auto call) {
    return shell_->ReleaseStagingBuffer(decoded, call);
  });
}

grpc::ServerUnaryReactor* DecodeService::Commit(grpc::CallbackServerContext* context,
                                                const v1::CommitRequest* request,
                                                v1::CommitResponse* response) {
  return Unary(context, *request, response, [this](auto decoded, auto call) {
    return shell_->Commit(std::move(decoded), call);
  });
}

grpc::ServerUnaryReactor* DecodeService::Abort(grpc::CallbackServerContext* context,
                                               const v1::AbortRequest* request,
                                               v1::AbortResponse*) {
  return Notice(context, *request, [this](auto decoded, auto* call) {
    return shell_->Abort(std::move(decoded), call);
  });
}

grpc::ServerBidiReactor<v1::TokenStreamRequest, v1::TokenBatch>* DecodeService::StreamTokens(
    grpc::CallbackServerContext* context) {
  return shell_->OpenTokenStream(context);
}

}  // namespace skein::services
