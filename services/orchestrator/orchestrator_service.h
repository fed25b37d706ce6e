// The gRPC face of the orchestrator: checks each message (services/codec) and hands it to the
// shell.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/orchestrator.grpc.pb.h"
#include "services/orchestrator/orchestrator_shell.h"

namespace skein::services {

class OrchestratorService final : public v1::Orchestrator::CallbackService {
 public:
  // `shell` outlives the service.
  explicit OrchestratorService(OrchestratorShell* shell);

  // What Status says of this process. Any thread.
  void SetAdminPort(uint32_t port) { admin_port_.store(port); }

  // While it drains, routers are told to send nothing new. Any thread.
  void OrderDrain(bool drain) { shell_->OrderDrain(drain); }
  bool draining() const { return shell_->draining(); }

  grpc::ServerBidiReactor<v1::RouterMessages, v1::OrchestratorRouterMessages>* ConnectRouter(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<v1::WorkerMessages, v1::OrchestratorMessages>* ConnectWorker(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context,
                                   const v1::StatusRequest* request,
                                   v1::StatusResponse* response) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override;
  grpc::ServerUnaryReactor* Explain(grpc::CallbackServerContext* context,
                                    const v1::ExplainRequest* request,
                                    v1::ExplainResponse* response) override;
  grpc::ServerUnaryReactor* ListRequests(grpc::CallbackServerContext* context,
                                         const v1::ListRequestsRequest* request,
                                         v1::ListRequestsResponse* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const v1::DrainRequest* request,
                                  v1::DrainResponse* response) override;
  grpc::ServerUnaryReactor* ListGroups(grpc::CallbackServerContext* context,
                                       const v1::ListGroupsRequest* request,
                                       v1::ListGroupsResponse* response) override;
  grpc::ServerUnaryReactor* ChangeFormation(grpc::CallbackServerContext* context,
                                            const v1::ChangeFormationRequest* request,
                                            v1::ChangeFormationResponse* response) override;

 private:
  OrchestratorShell* const shell_;
  const int64_t started_us_;
  std::atomic<uint32_t> admin_port_{0};
};

}  // namespace skein::services
