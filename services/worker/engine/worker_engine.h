// The engine of a worker with what belongs to it: a transport, and KV blocks that the transport's
// peers can reach.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/comm/paths/path_fabric.h"
#include "engine/device/copy_stream.h"
#include "engine/handoff/staging_receiver.h"
#include "engine/model/sharing/weight_sharing.h"
#include "engine/stepping/step_engine.h"
#include "engine/transport/transport.h"
#include "scheduler/base/messages.h"
#include "services/worker/process/worker_options.h"

namespace skein::services {

struct WorkerEngine {
  // Destroyed from the last to the first: the engine's memory belongs to the transport.
  std::shared_ptr<engine::CopyStream> copies;  // of a GPU; else null
  std::unique_ptr<engine::Transport> transport;
  std::unique_ptr<engine::PathFabric> fabric;  // to step together with others; may be null
  std::unique_ptr<engine::StepEngine> engine;
  int group_ranks_max = 1;  // of the largest group that the engine runs steps in; 1: none
  // The engine's, if it can share its weights with others of its node; else null, and why not.
  std::shared_ptr<engine::WeightSharing> sharing;
  absl::Status cannot_share = absl::UnimplementedError("engine: it cannot share its weights");
  std::vector<engine::RegionId> regions;             // one a layer
  std::string description;                           // of the regions, for grants
  std::unique_ptr<engine::StagingReceiver> staging;  // decode with --handoff=staging
};

// Loads the model. INVALID_ARGUMENT, NOT_FOUND, RESOURCE_EXHAUSTED name the flag or field and the
// value. `progress` gets how much of the weights was copied, where they are copied; may be empty.
absl::StatusOr<WorkerEngine> MakeWorkerEngine(
    const WorkerOptions& options, scheduler::Role role,
    const std::function<void(int64_t done_bytes, int64_t total_bytes)>& progress = nullptr);

scheduler::HandoffShape ShapeOf(const engine::EngineSpec& spec);

// The name under which clients know the model: --served-name, or the folder's name.
std::string ServedName(const WorkerOptions& options);

}  // namespace skein::services
