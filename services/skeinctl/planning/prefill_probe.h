// PrefillProbe: makes a running cluster compute prompts, one at a time, and reads the chunk
// durations from its prefill-workers. One thread; every call blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/orchestrator.grpc.pb.h"
#include "proto/prefill_worker.grpc.pb.h"
#include "scheduler/base/prefill_shape.h"
#include "services/rpc/rpc.h"
#include "services/skeinctl/planning/prefill_shapes.h"
#include "services/skeinctl/planning/probe_router.h"

namespace skein::services {

class PrefillProbe {
 public:
  // `model` may be empty when the cluster serves only one. UNAVAILABLE: the orchestrator does not
  // answer. NOT_FOUND: no such model. INVALID_ARGUMENT: several models and none named.
  static absl::StatusOr<std::unique_ptr<PrefillProbe>> Connect(const std::string& orchestrator,
                                                               const std::string& model);

  // Runs one request with this many prompt tokens to its end, in this shape.
  absl::Status Run(int64_t prompt_tokens, scheduler::PrefillShape shape);

  // The chunks computed since the last call, from all prefill-workers of the model.
  absl::StatusOr<std::vector<ChunkTime>> Collect();

  // The most prefill instances of the model on one node that can compute a prompt together.
  int64_t instances_of_node() const { return instances_of_node_; }
  int64_t prompt_tokens_max() const { return prompt_tokens_max_; }
  const std::string& model() const { return model_; }
  const std::string& device() const { return device_; }

 private:
  PrefillProbe() = default;
  absl::Status FindModel(const std::string& wanted);
  absl::Status FindWorkers();

  struct Worker {
    std::unique_ptr<v1::PrefillWorker::Stub> stub;
    std::string endpoint;
    uint64_t collected = 0;  // serial of the last step time read
  };

  Channels channels_;
  std::unique_ptr<v1::Orchestrator::Stub> orchestrator_;
  std::vector<Worker> workers_;
  std::string model_;
  std::string device_;
  int64_t instances_of_node_ = 0;
  int64_t prompt_tokens_max_ = 0;
  std::unique_ptr<ProbeRouter> router_;
};

}  // namespace skein::services
