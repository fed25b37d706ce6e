// SIGTERM and SIGINT while a process waits for or loads its model: it ends at once, because nothing
// would be lost.
#pragma once

#include <atomic>
#include <thread>

namespace skein::services {

// While it lives, a stop signal ends the process with exit code 0. The signals must be blocked in
// every thread (BlockStopSignals).
class EndOnStopSignal {
 public:
  EndOnStopSignal();
  ~EndOnStopSignal();

 private:
  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace skein::services
