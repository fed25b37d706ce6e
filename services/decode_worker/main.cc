// A decode-worker: takes KV over and samples tokens.
#include "services/base/process.h"
#include "services/worker/process/worker_options.h"
#include "services/worker/process/worker_process.h"

int main(int argc, char** argv) {
  using namespace skein::services;
  WorkerOptions options;
  FlagSet flags;
  options.RegisterDecode(&flags);
  const int code = StartProcess("decode-worker", options.log_level, argc, argv, &flags);
  if (code >= 0) return code;
  return EndProcess(RunDecodeWorker(options), flags);
}
