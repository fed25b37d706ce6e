// The router: the OpenAI-compatible front of a Skein cluster.
#include "services/base/process.h"
#include "services/router/options.h"
#include "services/router/router_process.h"

int main(int argc, char** argv) {
  using namespace skein::services;
  RouterOptions options;
  FlagSet flags;
  options.Register(&flags);
  const int code = StartProcess("router", options.log_level, argc, argv, &flags);
  if (code >= 0) return code;
  return EndProcess(RunRouter(options), flags);
}
