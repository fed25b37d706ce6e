// A decode-worker: takes KV over and draws tokens.
#include "services/base/process.h"
#include "services/worker/worker_options.h"
#include "services/worker/worker_process.h"

int main(int argc, char** argv) {
  skein::services::FlagSet flags("Skein's decode-worker: takes KV over and draws tokens.");
  skein::services::WorkerOptions options;
  options.Register(&flags);
  const int code = skein::services::StartProcess("decode-worker", argc, argv, &flags);
  if (code >= 0) return code;
  return skein::services::EndProcess(skein::services::RunDecodeWorker(options));
}
