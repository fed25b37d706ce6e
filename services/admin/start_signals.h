// SIGTERM and SIGINT while a process waits for its model or loads it: nothing would be lost, so it
// ends at once.
#pragma once

#include <atomic>
#include <thread>

namespace skein::services {

// As long as it lives, a stop signal ends the process with exit code 0. The signals are blocked in
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
