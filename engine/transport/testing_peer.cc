// The process behind SpawnProcessTarget: testing_peer <UCX_TLS> [far], commands on descriptor 3.
#include <signal.h>
#include <sys/prctl.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "engine/device/far_device.h"
#include "engine/transport/testing_target.h"
#include "engine/transport/ucx_transport.h"

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  skein::engine::UcxOptions options;
  if (argc > 1) options.tls = argv[1];
  std::shared_ptr<skein::engine::FarDevice> device;
  std::shared_ptr<skein::engine::CopyStream> copies;
  if (argc > 2) {
    device = std::make_shared<skein::engine::FarDevice>(1 << 20);
    copies = skein::engine::MakeFarCopyStream(device);
  }
  auto transport = skein::engine::MakeUcxTransport(options, copies);
  if (!transport.ok()) {
    std::fprintf(stderr, "%s\n", transport.status().ToString().c_str());
    return 1;
  }
  skein::engine::InProcessTarget target(*std::move(transport), device);
  skein::engine::ServeTarget(&target, 3);
  return 0;
}
