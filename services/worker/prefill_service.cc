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

grpc::ServerUnaryReactor* PrefillService::Cancel(grpc::CallbackServerContext* context,
                                                 const v1::CancelRequest* request,
                                                 v1::CancelResponse*) {
  return Notice(context, *request, [this](const auto& decoded) { shell_->Cancel(decoded); });
}

}  // namespace skein::services
