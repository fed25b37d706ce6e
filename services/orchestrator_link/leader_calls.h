// LeaderCalls: unary calls of the orchestrator that leads one cell, on the caller's thread. A call
// that reaches a standby, or nobody, is made again at the others, each of them at most once.
// Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <string>

#include "grpcpp/grpcpp.h"
#include "services/orchestrator_link/cell_orchestrators.h"
#include "services/rpc/rpc.h"
#include "services/tls/roles.h"

namespace skein::services {

class LeaderCalls {
 public:
  // `channels` outlives it. `cell`: as CellOrchestrators takes it.
  LeaderCalls(Channels* channels, std::string cell);

  // `method` of a service's stub: &v1::Orchestrator::Stub::ListModels. `timeout`: of each call. The
  // status is the last call's; CANCELLED after Cancel.
  template <typename Stub, typename Request, typename Response>
  grpc::Status Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response, std::chrono::milliseconds timeout) {
    orchestrators_.BeginRound();
    for (;;) {
      const std::string orchestrator = orchestrators_.Current();
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + timeout);
      Stub stub(channels_->Get(orchestrator, {tls::Role::kOrchestrator}));
      tracker_.Add(&context);
      grpc::Status status = (stub.*method)(&context, request, response);
      tracker_.Release(&context);
      tracker_.Leave();
      if (!TryAnother(orchestrator, status)) return status;
    }
  }

  // Ends the calls under way and all later ones, and waits for them. Any thread.
  void Cancel();

  const std::string& cell() const { return cell_; }
  // HOST:PORT of the one that is called next.
  std::string Current() const { return orchestrators_.Current(); }

 private:
  // Whether the call that ended with `status` may do better at another orchestrator, at once.
  bool TryAnother(const std::string& orchestrator, const grpc::Status& status);

  Channels* const channels_;
  const std::string cell_;
  CellOrchestrators orchestrators_;
  std::atomic<bool> cancelled_{false};
  CallTracker tracker_;
};

}  // namespace skein::services
