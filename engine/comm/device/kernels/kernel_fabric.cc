#include "engine/comm/device/kernels/kernel_fabric.h"

#include <utility>

#include "engine/comm/device/kernels/kernel_communicator.h"
#include "engine/comm/warn_once.h"
#include "engine/parallel/shard_layout.h"

namespace skein::engine {
namespace {

class KernelFabric final : public Fabric {
 public:
  KernelFabric(KernelFabricParts parts, std::shared_ptr<KernelMemory> memory)
      : parts_(std::move(parts)), memory_(std::move(memory)) {}

  const std::string& Address() const override { return parts_.hosts->Address(); }

  absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(GroupId id,
                                                          std::span<const std::string> addresses,
                                                          int rank) override {
    auto below = parts_.below->MakeGroup(id, addresses, rank);
    if (!below.ok()) return below;
    if (parts_.serves != nullptr && !parts_.serves(addresses)) return below;
    // No id that callers use ends so.
    const GroupId hosts_id{id.high ^ 0x94d049bb133111ebu, id.low ^ 0xbf58476d1ce4e5b9u};
    auto hosts = parts_.hosts->MakeGroup(hosts_id, addresses, rank);
    if (!hosts.ok()) return hosts;
    return std::make_unique<KernelCommunicator>(parts_, *std::move(hosts), *std::move(below),
                                                memory_);
  }

 private:
  const KernelFabricParts parts_;
  const std::shared_ptr<KernelMemory> memory_;
};

}  // namespace

size_t KernelBytesOfNode(const PeerShape& shape, int ranks) {
  size_t bytes = 0;
  const auto add = [&](int size) {
    bytes += PeerMemoryBytes(shape, size) + PeerEpochsBytes(shape) + sizeof(PeerReport) + 3 * 256;
  };
  for (int size = 2; size <= ranks; size *= 2) {
    add(size);
    for (const GroupMode mode : ModesOf(size)) {
      if (mode.sp == 1 || mode.tp == 1) continue;
      add(mode.sp);
      add(mode.tp);
    }
  }
  return bytes;
}

absl::StatusOr<std::unique_ptr<Fabric>> MakeKernelFabric(KernelFabricParts parts) {
  std::shared_ptr<KernelMemory> memory;
  if (parts.copies == nullptr) {
    memory = std::make_shared<KernelMemory>(parts.device, parts.wait_max);
  } else {
    auto reserved =
        KernelMemory::Reserve(parts.device, parts.copies, parts.reserved_bytes, parts.wait_max);
    if (!reserved.ok()) return reserved.status();
    memory = *std::move(reserved);
  }
  parts.warn = EachOnce(std::move(parts.warn));
  return std::make_unique<KernelFabric>(std::move(parts), std::move(memory));
}

}  // namespace skein::engine
