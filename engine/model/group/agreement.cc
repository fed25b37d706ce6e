#include "engine/model/group/agreement.h"

namespace skein::engine {

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
