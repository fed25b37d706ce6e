#include "services/worker/prefill/prefill_service.h"

#include "services/rpc/credentials.h"
#include "services/rpc/status_map.h"

namespace skein::services {

grpc::ServerUnaryReactor* PrefillService::StepTimes(grpc::CallbackServerContext* context,
                                                    const v1::StepTimesRequest* request,
                                                    v1::StepTimesResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (absl::Status caller = CheckCaller(*context); !caller.ok()) {
    reactor->Finish(ToGrpc(caller));
    return reactor;
  }
  for (const StepTime& time : shell_->StepTimes(request->after())) {
    v1::StepTimesResponse::StepTime* out = response->add_times();
    out->set_serial(time.serial);
    out->set_history_tokens(static_cast<uint64_t>(time.history_tokens));
    out->set_chunk_tokens(static_cast<uint64_t>(time.chunk_tokens));
    out->set_seconds(time.seconds);
    out->set_instances(static_cast<uint32_t>(time.instances));
    out->set_tp(static_cast<uint32_t>(time.tp));
  }
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace skein::services
