#include "services/orchestrator/orchestrator_service.h"

#include <utility>

#include "services/base/version.h"
#include "services/codec/unary.h"

namespace skein::services {
namespace {

const char kDraining[] = "the orchestrator drains and takes no new requests";
const char kInboxFull[] = "the inbox is full";
constexpr uint32_t kListedMax = 1000;

void FillHealth(const scheduler::OrchestratorSnapshot& snapshot, v1::StatusResponse* out) {
  for (const std::string& name : snapshot.models) {
    v1::ModelHealth* model = out->add_models();
    model->set_model(name);
    for (const scheduler::InstanceStatus& instance : snapshot.instances) {
      if (instance.identity.model != name || !instance.placeable) continue;
      if (instance.identity.role == scheduler::Role::kPrefill) {
        model->set_prefill_serving(model->prefill_serving() + 1);
      } else {
        model->set_decode_serving(model->decode_serving() + 1);
      }
    }
  }
}

void FillStatus(const OrchestratorShell::Copy& copy, v1::StatusResponse* out) {
  const scheduler::OrchestratorSnapshot& snapshot = copy.snapshot;
  for (const scheduler::InstanceStatus& instance : snapshot.instances) {
    *out->add_instances() = ToProto(instance);
  }
  for (const scheduler::RouterStatus& router : snapshot.routers) {
    *out->add_routers() = ToProto(router);
  }
  const int64_t now = MonotonicUs();
  for (const scheduler::Gone& gone : snapshot.gone) *out->add_gone() = ToProto(gone, now);
  FillHealth(snapshot, out);
  out->set_epoch(snapshot.last_epoch.value);
  out->set_generation(snapshot.generation);
  out->set_assigning(static_cast<uint64_t>(snapshot.planning + snapshot.assigning));
  out->set_parked(static_cast<uint64_t>(snapshot.parked));
  out->set_refused(snapshot.refused);
  out->set_assigned(static_cast<uint64_t>(snapshot.assigned));
  out->set_waiting_for_decode(static_cast<uint64_t>(snapshot.waiting));
  // One that shares a prompt waits for its blocks at the decode instance, too.
  out->set_reserving(static_cast<uint64_t>(snapshot.reserving + snapshot.sharing));
  out->set_placed(static_cast<uint64_t>(snapshot.placed));
  out->set_version(kVersion);
  out->set_submitted(snapshot.submitted);
  out->set_failed(snapshot.failed);
  out->set_instances_lost(snapshot.instances_lost);
  out->set_invariants(copy.invariants.ok() ? "ok" : std::string(copy.invariants.message()));
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
  const bool posted = shell_->LookLater(
      [response, reactor, started_us = started_us_](const OrchestratorShell::Copy& copy) {
        FillStatus(copy, response);
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
  if (draining()) {
    reactor->Finish(ToGrpc(absl::UnavailableError(kDraining)));
    return reactor;
  }
  const bool posted = shell_->LookLater([response, reactor, lease_us = shell_->instance_lease_us()](
                                            const OrchestratorShell::Copy& copy) {
    *response = copy.models;
    response->set_instance_lease_us(static_cast<uint64_t>(lease_us));
    reactor->Finish(grpc::Status::OK);
  });
  if (!posted) reactor->Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, kInboxFull});
  return reactor;
}

grpc::ServerUnaryReactor* OrchestratorService::Explain(grpc::CallbackServerContext* context,
                                                       const v1::ExplainRequest* request,
                                                       v1::ExplainResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
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
  return Unary(context, *request, response,
               [this](auto decoded, auto call) { return shell_->Drain(std::move(decoded), call); });
}

}  // namespace skein::services
