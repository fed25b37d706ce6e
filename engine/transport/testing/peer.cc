// The process behind SpawnProcessTarget, with a FarDevice.
#include <memory>

#include "engine/device/testing/far_peer_opener.h"
#include "engine/transport/testing/target.h"
#include "engine/transport/testing/testing_options.h"
#include "engine/transport/ucx/ucx_transport.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

PeerParts MakeParts(const std::string& tls, TargetMemory memory) {
  std::shared_ptr<FarDevice> device;
  std::shared_ptr<CopyStream> copies;
  std::shared_ptr<PeerOpener> opener;
  if (memory != TargetMemory::kHost) {
    device = std::make_shared<FarDevice>(2 << 20);
    copies = MakeFarCopyStream(device);
  }
  if (IsShared(memory)) opener = MakeFarPeerOpener(device);
  auto transport = MakeUcxTransport(TestingOptions(tls), copies, opener);
  SKEIN_CHECK_MSG(transport.ok(), transport.status().ToString().c_str());
  return {*std::move(transport), device};
}

}  // namespace
}  // namespace skein::engine

int main(int argc, char** argv) {
  return skein::engine::RunTestingPeer(argc, argv, skein::engine::MakeParts);
}
