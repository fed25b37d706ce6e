// The gRPC face of a decode-worker.
#pragma once

#include "proto/decode_worker.grpc.pb.h"
#include "services/worker/decode/decode_shell.h"

namespace skein::services {

class DecodeService final : public v1::DecodeWorker::CallbackService {
 public:
  // Commit brings the log-probabilities of a prompt.
  static constexpr int kMessageBytesMax = kLogprobsMessageBytesMax;

  // `shell` outlives the service.
  explicit DecodeService(DecodeShell* shell) : shell_(shell) {}

  grpc::ServerUnaryReactor* OpenTransfer(grpc::CallbackServerContext* context,
                                         const v1::OpenTransferRequest* request,
                                         v1::OpenTransferResponse* response) override;
  grpc::ServerUnaryReactor* Renew(grpc::CallbackServerContext* context,
                                  const v1::RenewRequest* request,
                                  v1::RenewResponse* response) override;
  grpc::ServerUnaryReactor* AcquireStagingBuffer(
      grpc::CallbackServerContext* context, const v1::AcquireStagingBufferRequest* request,
      v1::AcquireStagingBufferResponse* response) override;
  grpc::ServerUnaryReactor* TakePart(grpc::CallbackServerContext* context,
                                     const v1::TakePartRequest* request,
                                     v1::TakePartResponse* response) override;
  grpc::ServerUnaryReactor* ReleaseStagingBuffer(
      grpc::CallbackServerContext* context, const v1::ReleaseStagingBufferRequest* request,
      v1::ReleaseStagingBufferResponse* response) override;
  grpc::ServerUnaryReactor* Commit(grpc::CallbackServerContext* context,
                                   const v1::CommitRequest* request,
                                   v1::CommitResponse* response) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context,
                                  const v1::AbortRequest* request,
                                  v1::AbortResponse* response) override;
  grpc::ServerBidiReactor<v1::TokenStreamRequest, v1::TokenBatch>* StreamTokens(
      grpc::CallbackServerContext* context) override;

 private:
  // Unary, for a further call of a transfer.
  template <typename Request, typename Response, typename PassOn>
  grpc::ServerUnaryReactor* GoOn(grpc::CallbackServerContext* context, const Request& request,
                                 Response* response, PassOn pass_on);

  DecodeShell* const shell_;
};

}  // namespace skein::services
