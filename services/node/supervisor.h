// Starts the instances, passes signals on, reaps every child (also those that are not ours: as
// process 1 it gets them), starts again what died, and ends when all have ended.
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

  // Until all have ended after SIGTERM or SIGINT, which are blocked in every thread, as are SIGHUP
  // and SIGCHLD. On the thread that lives as long as the process.
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
