#include "services/orchestrator_link/leader_calls.h"

#include <utility>

#include "services/shell/loop.h"

namespace skein::services {

LeaderCalls::LeaderCalls(Channels* channels, std::string cell)
    : channels_(channels), cell_(std::move(cell)), orchestrators_(cell_) {}

void LeaderCalls::Cancel() {
  cancelled_.store(true);
  tracker_.CancelAndWait();
}

bool LeaderCalls::TryAnother(const std::string& orchestrator, const grpc::Status& status) {
  if (cancelled_.load()) return false;
  const absl::Status told = FromGrpc(status, "orchestrator");
  if (!IsTransportFailure(status) && !LeaderOf(told).has_value()) return false;
  if (OrchestratorIsGone(told)) channels_->Forget(orchestrator);
  return orchestrators_.Failed(orchestrator, told, MonotonicUs());
}

}  // namespace skein::services
