#include "engine/comm/testing/far_fabric.h"

#include <utility>

#include "engine/comm/testing/device_buffers.h"
#include "engine/comm/testing/far_peer.h"
#include "engine/comm/testing/near_fabric.h"
#include "engine/device/testing/far_device.h"

namespace skein::engine {
namespace {

constexpr size_t kFarBytes = size_t{512} << 20;

}  // namespace

std::unique_ptr<Fabric> MakeFarFabric(std::unique_ptr<Fabric> hosts, DevicePath path) {
  auto device = std::make_shared<FarDevice>(kFarBytes);
  if (path == DevicePath::kOnDevice) hosts = MakeNearFabric(std::move(hosts), device);
  return MakeBufferedFabric(MakeDeviceFabric(std::move(hosts), device, path), device);
}

std::unique_ptr<Fabric> MakeFarPeers() {
  auto device = std::make_shared<FarDevice>(kFarBytes);
  return MakeBufferedFabric(
      MakeDeviceFabric(MakeFarPeerFabric(device), device, DevicePath::kOnDevice), device);
}

}  // namespace skein::engine
