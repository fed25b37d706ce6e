// A prefill-worker: computes prompts and hands their KV over.
#include "services/base/process.h"
#include "services/worker/process/worker_options.h"
#include "services/worker/process/worker_process.h"

int main(int argc, char** argv) {
  using namespace skein::services;
  WorkerOptions options;
  FlagSet flags;
  options.RegisterPrefill(&flags);
  const int code = StartProcess("prefill-worker", options.log_level, argc, argv, &flags);
  if (code >= 0) return code;
  return EndProcess(RunPrefillWorker(options), flags);
}
