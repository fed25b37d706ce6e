#include "engine/model/agreement.h"

namespace skein::engine {

Digest::Digest(std::string_view model_hash) {
  for (const char c : model_hash) Add(static_cast<unsigned char>(c));
}

// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014) after every value.
void Digest::Add(uint64_t value) {
  value_ = (value_ ^ value) + 0x9e3779b97f4a7c15u;
  value_ = (value_ ^ (value_ >> 30)) * 0xbf58476d1ce4e5b9u;
  value_ = (value_ ^ (value_ >> 27)) * 0x94d049bb133111ebu;
  value_ ^= value_ >> 31;
}

void Digest::AddIds(std::span<const int32_t> ids) {
  Add(ids.size());
  for (const int32_t id : ids) Add(static_cast<uint32_t>(id));
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
