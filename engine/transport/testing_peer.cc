// The process behind SpawnProcessTarget: testing_peer <UCX_TLS>, commands on descriptor 3.
#include <signal.h>
#include <sys/prctl.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "engine/transport/testing_target.h"
#include "engine/transport/ucx_transport.h"

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  skein::engine::UcxOptions options;
  if (argc > 1) options.tls = argv[1];
  auto transport = skein::engine::MakeUcxTransport(options);
  if (!transport.ok()) {
    std::fprintf(stderr, "%s\n", transport.status().ToString().c_str());
    return 1;
  }
  skein::engine::InProcessTarget target(*std::move(transport));
  skein::engine::ServeTarget(&target, 3);
  return 0;
}
