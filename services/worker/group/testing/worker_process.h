// A decode-worker in a process of its own (group_worker.cc).
#pragma once

#include <cstdint>
#include <string>

#include "engine/testing/line_process.h"
#include "services/worker/group/testing/fault_point.h"

namespace skein::services::testing {

// One thread.
class WorkerProcess {
 public:
  struct Options {
    std::string device;     // of TinyWorkerOptions
    std::string model_dir;  // likewise
    int blocks = 16;
    int64_t limit_us = 0;  // as group_worker.cc's
  };

  WorkerProcess(const Options& options, const std::string& orchestrator, uint64_t index);

  // The answer to a command of group_worker.cc; "" when it has ended.
  std::string Ask(const std::string& command);
  void Arm(FaultPoint point, int signal);
  // It has been killed or stopped since it was started or continued.
  bool Struck() { return process_.Struck(); }
  void Continue() { process_.Continue(); }

 private:
  engine::LineProcess process_;
};

}  // namespace skein::services::testing
