#include "services/worker/group/testing/worker_process.h"

#include <signal.h>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::services::testing {
namespace {

constexpr char kProgram[] = "services/worker/group/testing/group_worker";

}  // namespace

WorkerProcess::WorkerProcess(const Options& options, const std::string& orchestrator,
                             uint64_t index)
    : process_({kProgram, options.device, options.model_dir, absl::StrCat(options.blocks),
                orchestrator, absl::StrCat(index), absl::StrCat(options.limit_us)}) {}

std::string WorkerProcess::Ask(const std::string& command) {
  process_.Tell(command);
  return process_.Hear().value_or("");
}

void WorkerProcess::Arm(FaultPoint point, int signal) {
  const std::string how = signal == SIGSTOP ? "stop" : "kill";
  const std::string answer = Ask(absl::StrCat("arm ", NameOf(point), " ", how));
  SKEIN_CHECK_MSG(answer == "armed", answer.c_str());
}

}  // namespace skein::services::testing
