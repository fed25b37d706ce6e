// The floor that the gateway is compared with: one prefill- and one decode-worker, used over their
// gRPC by this process, without router and orchestrator.
//
// Workers register with an orchestrator and ask it where a prompt's KV shall go, so this process
// serves that interface to them, with the least that it can mean: there is one decode-worker, and
// it is always chosen. A request makes the same calls of the workers as in a real cluster:
// Announce, Assign, and an attach to the one token stream.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/gateway/load.h"

namespace skein::bench {

struct DirectLoad {
  std::vector<int32_t> prompt;
  int64_t output_tokens = 1;
  int concurrency = 1;
};

class DirectCluster {
 public:
  // Serves the workers' orchestrator on a free port of loopback.
  static absl::StatusOr<std::unique_ptr<DirectCluster>> Start();
  virtual ~DirectCluster() = default;

  virtual int port() const = 0;
  // Waits until a worker of each role has registered and reported. DEADLINE_EXCEEDED otherwise.
  virtual absl::Status AwaitWorkers(double seconds) = 0;
  // Keeps `concurrency` streams running. A stream counts when it brought all its tokens, in order.
  virtual Samples Run(const DirectLoad& load, const Limit& limit) = 0;
};

}  // namespace skein::bench
