// Starts the instances, forwards signals, reaps every child (as process 1 also orphans), restarts
// failed instances, and ends when all have ended.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/node/child.h"
#include "services/node/instance_view.h"
#include "services/node/node_options.h"

namespace skein::services {

class Supervisor {
 public:
  // `view` outlives it.
  Supervisor(const NodeOptions& options, const std::vector<InstanceCommand>& commands,
             InstanceView* view);

  // Runs until all instances have ended after SIGTERM or SIGINT. These, SIGHUP and SIGCHLD are
  // blocked in every thread. Call on the thread that lives as long as the process.
  absl::Status Run();

 private:
  void StartDue();
  void Reap();
  void TakeSignals();
  void Stop(int signal);
  void Forward(size_t index);
  void Tell(size_t index);
  bool AnyRuns() const;
  int PollTimeoutMs() const;
  void Poll();

  const double stop_grace_s_;
  InstanceView* const view_;
  std::vector<std::unique_ptr<Child>> children_;
  int signal_fd_ = -1;
  bool stopping_ = false;
  int64_t kill_at_us_ = INT64_MAX;
  uint64_t lines_dropped_ = 0;
};

}  // namespace skein::services
