#include "services/worker/prefill/prefill_service.h"

namespace skein::services {

grpc::ServerUnaryReactor* PrefillService::StepTimes(grpc::CallbackServerContext* context,
                                                    const v1::StepTimesRequest* request,
                                                    v1::StepTimesResponse* response) {
  for (const StepTime& time : shell_->StepTimes(request->after())) {
    v1::StepTimesResponse::StepTime* out = response->add_times();
    out->set_serial(time.serial);
    out->set_history_tokens(static_cast<uint64_t>(time.history_tokens));
    out->set_chunk_tokens(static_cast<uint64_t>(time.chunk_tokens));
    out->set_seconds(time.seconds);
    out->set_instances(static_cast<uint32_t>(time.instances));
    out->set_tp(static_cast<uint32_t>(time.tp));
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace skein::services
