#include "engine/model/ring/ring_blocks.h"

namespace skein::engine {
namespace {

// Calls copy(place in the layer, place in the buffer, bytes) for runs of neighbouring blocks.
template <typename Copy>
absl::Status ForRuns(const KvLayerView& layer, std::span<const int32_t> ids, const Copy& copy) {
  const int64_t block_bytes = layer.spec->BlockBytes();
  for (size_t begin = 0, end; begin < ids.size(); begin = end) {
    end = begin + 1;
    while (end < ids.size() && ids[end] == ids[end - 1] + 1) ++end;
    const absl::Status copied =
        copy(static_cast<std::byte*>(layer.base) + ids[begin] * block_bytes,
             static_cast<int64_t>(begin) * block_bytes,
             static_cast<size_t>(static_cast<int64_t>(end - begin) * block_bytes));
    if (!copied.ok()) return copied;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PackBlocks(Device* device, const KvLayerView& layer, std::span<const int32_t> ids,
                        std::byte* buffer) {
  const absl::Status copied =
      ForRuns(layer, ids, [&](const std::byte* blocks, int64_t at, size_t bytes) {
        return device->Copy(buffer + at, blocks, bytes, CopyKind::kDeviceToDevice);
      });
  return copied.ok() ? device->Synchronize() : copied;
}

absl::Status UnpackBlocks(Device* device, const KvLayerView& layer, std::span<const int32_t> ids,
                          const std::byte* buffer) {
  const absl::Status copied = ForRuns(layer, ids, [&](std::byte* blocks, int64_t at, size_t bytes) {
    return device->Copy(blocks, buffer + at, bytes, CopyKind::kDeviceToDevice);
  });
  return copied.ok() ? device->Synchronize() : copied;
}

}  // namespace skein::engine
