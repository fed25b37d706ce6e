// The router: the OpenAI-compatible front of a Skein cluster.
#include "services/base/process.h"
#include "services/router/options.h"
#include "services/router/router_process.h"

int main(int argc, char** argv) {
  skein::services::FlagSet flags("Skein's router: the OpenAI-compatible front of a cluster.");
  skein::services::RouterOptions options;
  options.Register(&flags);
  const int code = skein::services::StartProcess("router", argc, argv, &flags);
  if (code >= 0) return code;
  return skein::services::EndProcess(skein::services::RunRouter(options));
}
