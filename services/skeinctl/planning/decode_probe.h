// DecodeProbe: runs streams on a live, idle cluster and measures the steps of its decode instances
// meanwhile (decode_window.h). One thread; every call blocks. A stop signal ends a wait with
// CANCELLED, if CatchStopSignals was called.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/skeinctl/cluster/cluster_client.h"
#include "services/skeinctl/planning/decode_window.h"
#include "services/skeinctl/planning/probe_router.h"

namespace skein::services {

class DecodeProbe {
 public:
  // `client` outlives it. The cluster serves `model`, whose requests have at most `tokens_max`
  // tokens, prompt and output.
  DecodeProbe(ClusterClient* client, std::string model, int64_t tokens_max);

  // Runs so many streams at a time until each has had `steps` tokens while all ran; then cancels
  // them. The samples are of the targets of `size` instances. FAILED_PRECONDITION: not measured,
  // other requests ran. RESOURCE_EXHAUSTED: so many do not run at a time. UNAVAILABLE: a process
  // does not answer.
  absl::StatusOr<std::vector<DecodeSample>> Run(const std::vector<DecodeTarget>& targets,
                                                int32_t size, int64_t streams, int64_t steps);

  // Waits until no decode instance of the model has requests. FAILED_PRECONDITION names one that
  // still has some.
  absl::Status AwaitIdle();

 private:
  using Clock = std::chrono::steady_clock;
  class Streams;

  absl::StatusOr<int64_t> OutputTokens(size_t targets, int64_t streams, int64_t steps) const;
  // When each was read.
  absl::StatusOr<std::vector<Clock::time_point>> Read(MemberNumbers DecodeWindow::*numbers,
                                                      std::vector<DecodeWindow>* windows);

  ClusterClient* const client_;
  const std::string model_;
  const int64_t tokens_max_;
  std::unique_ptr<ProbeRouter> router_;
  // Of the decode instances, as of AwaitIdle.
  std::map<uint64_t, std::string> admin_;
  int64_t pool_tokens_ = 0;   // that the smallest pool holds
  int64_t requests_max_ = 0;  // that one of them holds at a time
};

}  // namespace skein::services
