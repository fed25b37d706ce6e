// A prefill-worker: computes prompts and hands their KV over.
#include "services/base/process.h"
#include "services/worker/worker_options.h"
#include "services/worker/worker_process.h"

int main(int argc, char** argv) {
  skein::services::FlagSet flags(
      "Skein's prefill-worker: computes prompts and hands their KV over.");
  skein::services::WorkerOptions options;
  options.Register(&flags);
  const int code = skein::services::StartProcess("prefill-worker", argc, argv, &flags);
  if (code >= 0) return code;
  return skein::services::EndProcess(skein::services::RunPrefillWorker(options));
}
