#include "engine/comm/device/kernel_fabric.h"

#include <mutex>
#include <utility>
#include <vector>

#include "engine/comm/device/kernel_communicator.h"

namespace skein::engine {
namespace {

class KernelFabric final : public Fabric {
 public:
  explicit KernelFabric(KernelFabricParts parts)
      : parts_(std::move(parts)), memory_(std::make_shared<KernelMemory>(parts_.device)) {}

  const std::string& Address() const override { return parts_.hosts->Address(); }

  absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(GroupId id,
                                                          std::span<const std::string> addresses,
                                                          int rank) override {
    auto below = parts_.below->MakeGroup(id, addresses, rank);
    if (!below.ok()) return below;
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

KernelMemory::~KernelMemory() {
  opened_.clear();
  for (const auto& [memory, bytes] : owned_) device_->Free(memory, bytes);
}

absl::StatusOr<std::byte*> KernelMemory::Take(size_t bytes) {
  const absl::StatusOr<void*> memory = device_->Alloc(bytes);
  if (!memory.ok()) return memory.status();
  const std::lock_guard lock(mutex_);
  owned_.emplace_back(*memory, bytes);
  return static_cast<std::byte*>(*memory);
}

std::byte* KernelMemory::Keep(std::shared_ptr<std::byte> opened) {
  const std::lock_guard lock(mutex_);
  opened_.push_back(std::move(opened));
  return opened_.back().get();
}

std::unique_ptr<Fabric> MakeKernelFabric(KernelFabricParts parts) {
  return std::make_unique<KernelFabric>(std::move(parts));
}

}  // namespace skein::engine
