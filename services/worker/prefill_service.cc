#include "services/worker/prefill_service.h"

#include <utility>

#include "services/codec/unary.h"

namespace skein::services {

grpc::ServerUnaryReactor* PrefillService::Assign(grpc::CallbackServerContext* context,
                                                 const v1::AssignRequest* request,
                                                 v1::AssignResponse* response) {
  return Unary(context, *request, response, [this](auto decoded, auto call) {
    return shell_->Assign(std::move(decoded), call);
  });
}

grpc::ServerUnaryReactor* PrefillService::Start(grpc::CallbackServerContext* context,
                                                const v1::StartRequest* request,
                                                v1::StartResponse* response) {
  return Unary(context, *request, response,
               [this](const auto& decoded, auto call) { return shell_->Start(decoded, call); });
}

grpc::ServerUnaryReactor* PrefillService::Cancel(grpc::CallbackServerContext* context,
                                                 const v1::CancelRequest* request,
                                                 v1::CancelResponse*) {
  return Notice(context, *request, [this](auto decoded, auto* call) {
    return shell_->Cancel(std::move(decoded), call);
  });
}

grpc::ServerUnaryReactor* PrefillService::StepTimes(grpc::CallbackServerContext* context,
                                                    const v1::StepTimesRequest* request,
                                                    v1::StepTimesResponse* response) {
  for (const StepTime& time : shell_->StepTimes(request->after())) {
    v1::StepTimesResponse::StepTime* out = response->add_times();
    out->set_serial(time.serial);
    out->set_history_tokens(static_cast<uint64_t>(time.history_tokens));
    out->set_chunk_tokens(static_cast<uint64_t>(time.chunk_tokens));
    out->set_seconds(time.seconds);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace skein::services
