// Long prompts with short answers, all the time: prompts are computed and handed from prefill to
// decode instances at any moment, so that a fault meets handoffs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/orchestrator.pb.h"
#include "services/skeinctl/chaos/chaos_load.h"
#include "services/skeinctl/chaos/judge.h"

namespace skein::services::chaos {

// Requests whose handoff is under way: a decode instance holds their blocks, and has not got all of
// their keys and values. Names of requests, as `skeinctl explain` takes them. Pure.
std::vector<std::string> HandoffsUnderWay(const v1::ListRequestsResponse& requests);

// Adds to a row what another load of the same scenario met: counts and errors, no gaps. Pure.
void AddCounts(const Row& other, Row* row);

class HandoffLoad {
 public:
  using Requests = std::function<absl::StatusOr<v1::ListRequestsResponse>()>;

  // `load` has the routers, the model and the key; its requests and streams are replaced. Prompts
  // are of `prompt_tokens` and more. `requests` asks the orchestrator for the latest ones.
  HandoffLoad(LoadOptions load, int64_t prompt_tokens, uint64_t seed, Requests requests);

  // Asks each request alone, at the first call. UNAVAILABLE: one failed.
  absl::Status Prepare();
  void Start();
  // Blocks until the orchestrator knows a handoff that is under way; its request's name.
  // DEADLINE_EXCEEDED: none was seen. ABORTED: a stop signal came.
  absl::StatusOr<std::string> AwaitHandoff() const;
  // Waits for the answers under way. The counts of all since Start; `marks` are of what was broken
  // since then.
  Row Stop(const std::vector<FaultMark>& marks);

 private:
  const LoadOptions options_;
  const Requests requests_;
  std::unique_ptr<ChaosLoad> load_;
  std::vector<Reference> references_;
};

}  // namespace skein::services::chaos
