#include "engine/model/sharing/shared_layers.h"

#include <algorithm>
#include <utility>

#include "engine/device/device.h"

namespace skein::engine {

SharedLayout::SharedLayout(const std::vector<FeedForwardWeights>& layers, WeightOwners owners,
                           int owner) {
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool owned = owners.OwnerOf(static_cast<int>(i)) == owner;
    offsets_.push_back(owned ? static_cast<int64_t>(bytes_) : -1);
    if (owned) bytes_ += DeviceBytes(static_cast<size_t>(PackedFeedForward(layers[i]).bytes()));
  }
  bytes_ = std::max(bytes_, kDevicePageBytes);
}

std::unique_ptr<SharedLayers> SharedLayers::Allocate(SharedLayout layout) {
  std::unique_ptr<SharedRegion> region = SharedRegion::Allocate(layout.bytes());
  if (region == nullptr) return nullptr;
  return std::unique_ptr<SharedLayers>(new SharedLayers(std::move(layout), std::move(region)));
}

std::unique_ptr<SharedLayers> SharedLayers::Map(SharedLayout layout, const std::string& process,
                                                const std::string& name) {
  std::unique_ptr<SharedRegion> region = SharedRegion::Map(process, name, layout.bytes());
  if (region == nullptr) return nullptr;
  return std::unique_ptr<SharedLayers>(new SharedLayers(std::move(layout), std::move(region)));
}

}  // namespace skein::engine
