// The process behind SpawnProcessTarget on a GPU: its regions lie in memory of cuda:0.
#include <memory>
#include <string>

#include "engine/cuda/device/cuda_copy_stream.h"
#include "engine/cuda/device/cuda_device.h"
#include "engine/cuda/device/cuda_peer_opener.h"
#include "engine/transport/testing/target.h"
#include "engine/transport/ucx/ucx_transport.h"

namespace skein::engine {
namespace {

PeerParts MakeParts(const std::string& tls, TargetMemory memory) {
  std::shared_ptr<PeerOpener> opener;
  if (IsShared(memory)) opener = MakeCudaPeerOpener("cuda:0").value();
  return {MakeUcxTransport({.tls = tls}, MakeCudaCopyStream("cuda:0").value(), opener).value(),
          OpenCudaDevice("cuda:0").value()};
}

}  // namespace
}  // namespace skein::engine

int main(int argc, char** argv) {
  return skein::engine::RunTestingPeer(argc, argv, skein::engine::MakeParts);
}
