#include "services/orchestrator/orchestrator_service.h"

#include <utility>

#include "services/base/version.h"
#include "services/codec/unary.h"
#include "services/orchestrator/status_answers.h"
#include "services/rpc/credentials.h"
#include "services/rpc/status_map.h"

namespace skein::services {
namespace {

const char kDraining[] = "the orchestrator drains and takes no new requests";
const char kInboxFull[] = "the inbox is full";
constexpr uint32_t kListedMax = 1000;

// Whether the call is refused, because of who calls or by a standby.
bool Refused(const grpc::CallbackServerContext& context, const OrchestratorShell& shell,
             grpc::ServerUnaryReactor* reactor) {
  absl::Status standing = CheckCaller(context);
  if (standing.ok()) standing = shell.Standing();
  if (!standing.ok()) reactor->Finish(ToGrpc(standing));
  return !standing.ok();
}

}  // namespace

OrchestratorService::OrchestratorService(OrchestratorShell* shell)
    : shell_(shell), started_us_(MonotonicUs()) {}

grpc::ServerBidiReactor<v1::RouterMessages, v1::OrchestratorRouterMessages>*
OrchestratorService::ConnectRouter(grpc::CallbackServerContext* context) {
  return shell_->ConnectRouter(context);
}

grpc::ServerBidiReactor<v1::WorkerMessages, v1::OrchestratorMessages>*
OrchestratorService::ConnectWorker(grpc::CallbackServerContext* context) {
  return shell_->ConnectWorker(context);
}

grpc::ServerUnaryReactor* OrchestratorService::Status(grpc::CallbackServerContext* context,
                                                      const v1::StatusRequest* request,
                                                      v1::StatusResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (Refused(*context, *shell_, reactor)) return reactor;
  const bool posted =
      shell_->LookLater([response, reactor, started_us = started_us_,
                         admin_port = admin_port_.load()](const OrchestratorShell::Copy& copy) {
        FillStatus(copy.snapshot, copy.invariants, MonotonicUs(), response);
        response->set_admin_port(admin_port);
        response->set_version(kVersion);
        response->set_uptime_us(static_cast<uint64_t>(MonotonicUs() - started_us));
        reactor->Finish(grpc::Status::OK);
      });
  if (!posted) reactor->Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, kInboxFull});
  return reactor;
}

grpc::ServerUnaryReactor* OrchestratorService::ListModels(grpc::CallbackServerContext* context,
                                                          const v1::ListModelsRequest* request,
                                                          v1::ListModelsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (Refused(*context, *shell_, reactor)) return reactor;
  if (draining()) {
    reactor->Finish(ToGrpc(absl::UnavailableError(kDraining)));
    return reactor;
  }
  const bool posted =
      shell_->ListModelsLater([response, reactor](const v1::ListModelsResponse& models) {
        *response = models;
        reactor->Finish(grpc::Status::OK);
      });
  if (!posted) reactor->Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, kInboxFull});
  return reactor;
}

grpc::ServerUnaryReactor* OrchestratorService::Explain(grpc::CallbackServerContext* context,
                                                       const v1::ExplainRequest* request,
                                                       v1::ExplainResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (Refused(*context, *shell_, reactor)) return reactor;
  const bool posted = shell_->ExplainLater(
      request->request(), [request = request->request(), response,
                           reactor](const std::vector<scheduler::Explanation>& explanations) {
        for (const scheduler::Explanation& one : explanations) {
          *response->add_requests() = ToProto(one);
        }
        reactor->Finish(explanations.empty()
                            ? grpc::Status(grpc::StatusCode::NOT_FOUND,
                                           "request '" + request + "' is not known")
                            : grpc::Status::OK);
      });
  if (!posted) reactor->Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, kInboxFull});
  return reactor;
}

grpc::ServerUnaryReactor* OrchestratorService::ListRequests(grpc::CallbackServerContext* context,
                                                            const v1::ListRequestsRequest* request,
                                                            v1::ListRequestsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (Refused(*context, *shell_, reactor)) return reactor;
  if (request->limit() < 1 || request->limit() > kListedMax) {
    reactor->Finish({grpc::StatusCode::INVALID_ARGUMENT,
                     "limit: " + std::to_string(request->limit()) + " is not between 1 and 1000"});
    return reactor;
  }
  const auto order = request->order() == v1::ListRequestsRequest::ORDER_SLOWEST
                         ? scheduler::RequestOrder::kSlowest
                         : scheduler::RequestOrder::kRecent;
  const bool posted = shell_->ListLater(
      order, request->limit(), [response, reactor](const OrchestratorShell::Explanations& list) {
        for (const scheduler::Explanation& one : list) *response->add_requests() = ToProto(one);
        reactor->Finish(grpc::Status::OK);
      });
  if (!posted) reactor->Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, kInboxFull});
  return reactor;
}

grpc::ServerUnaryReactor* OrchestratorService::Drain(grpc::CallbackServerContext* context,
                                                     const v1::DrainRequest* request,
                                                     v1::DrainResponse* response) {
  OrchestratorShell::DrainCaller caller{CallerRoles(*context), context->peer()};
  return Unary(context, *request, response, [this, &caller](auto decoded, auto call) {
    return shell_->Drain(std::move(decoded), std::move(caller), call);
  });
}

grpc::ServerUnaryReactor* OrchestratorService::ListGroups(grpc::CallbackServerContext* context,
                                                          const v1::ListGroupsRequest*,
                                                          v1::ListGroupsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (Refused(*context, *shell_, reactor)) return reactor;
  const bool posted = shell_->LookLater([response, reactor](const OrchestratorShell::Copy& copy) {
    for (const scheduler::GroupStatus& group : copy.snapshot.groups) {
      *response->add_groups() = ToProto(group);
    }
    reactor->Finish(grpc::Status::OK);
  });
  if (!posted) reactor->Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, kInboxFull});
  return reactor;
}

grpc::ServerUnaryReactor* OrchestratorService::ChangeFormation(
    grpc::CallbackServerContext* context, const v1::ChangeFormationRequest* request,
    v1::ChangeFormationResponse* response) {
  return Unary(context, *request, response, [this](auto decoded, auto call) {
    return shell_->ChangeFormation(std::move(decoded), call);
  });
}

}  // namespace skein::services
