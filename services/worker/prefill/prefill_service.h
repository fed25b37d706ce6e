// The gRPC face of a prefill-worker.
#pragma once

#include "proto/prefill_worker.grpc.pb.h"
#include "services/worker/prefill/prefill_shell.h"

namespace skein::services {

class PrefillService final : public v1::PrefillWorker::CallbackService {
 public:
  static constexpr int kMessageBytesMax = services::kMessageBytesMax;

  // `shell` outlives the service.
  explicit PrefillService(PrefillShell* shell) : shell_(shell) {}

  grpc::ServerUnaryReactor* StepTimes(grpc::CallbackServerContext* context,
                                      const v1::StepTimesRequest* request,
                                      v1::StepTimesResponse* response) override;

 private:
  PrefillShell* const shell_;
};

}  // namespace skein::services
