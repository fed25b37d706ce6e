#include "engine/model/spanning_blocks.h"

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

absl::StatusOr<std::vector<uint64_t>> GatherValues(Communicator* comm, Device* device,
                                                   std::span<const uint64_t> mine,
                                                   std::byte* scratch, CommDeadline deadline) {
  const auto ranks = static_cast<size_t>(comm->Size());
  const size_t bytes = mine.size_bytes();
  std::byte* all = scratch + bytes;
  absl::Status status = device->Copy(scratch, mine.data(), bytes, CopyKind::kHostToDevice);
  if (status.ok()) status = device->Synchronize();
  if (status.ok()) status = comm->AllGather({scratch, bytes}, {all, ranks * bytes}, deadline);
  std::vector<uint64_t> values(ranks * mine.size());
  if (status.ok()) {
    status = device->Copy(values.data(), all, ranks * bytes, CopyKind::kDeviceToHost);
  }
  if (status.ok()) status = device->Synchronize();
  if (!status.ok()) return status;
  return values;
}

}  // namespace skein::engine
