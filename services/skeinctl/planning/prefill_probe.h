// PrefillProbe: has a running cluster compute prompts, one at a time, and asks its prefill-workers
// how long the chunks took. One thread; every call blocks. To the cluster it is a router that
// drains.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/orchestrator.grpc.pb.h"
#include "proto/prefill_worker.grpc.pb.h"
#include "scheduler/plan/latency/fit.h"
#include "services/router/link/router_shell.h"
#include "services/rpc/rpc.h"

namespace skein::services {

class PrefillProbe {
 public:
  // `model` may be empty when the cluster serves one. UNAVAILABLE: the orchestrator does not
  // answer; NOT_FOUND: no such model; INVALID_ARGUMENT: several models and none named.
  static absl::StatusOr<std::unique_ptr<PrefillProbe>> Connect(const std::string& orchestrator,
                                                               const std::string& model);
  ~PrefillProbe();

  // Serves one request of so many prompt tokens to its end. It is asked to run on one instance.
  absl::Status Run(int64_t prompt_tokens);

  // The chunks that were computed since the last call, of all prefill-workers of the model.
  absl::StatusOr<std::vector<scheduler::LatencySample>> Collect();

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
    uint64_t collected = 0;  // serial of the last step time that was read
  };

  Channels channels_;
  std::unique_ptr<v1::Orchestrator::Stub> orchestrator_;
  std::vector<Worker> workers_;
  std::string model_;
  std::string device_;
  int64_t prompt_tokens_max_ = 0;
  std::unique_ptr<RouterShell> router_;
};

}  // namespace skein::services
