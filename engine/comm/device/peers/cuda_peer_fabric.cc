#include "engine/comm/device/peers/cuda_peer_fabric.h"

#include <cuda_runtime_api.h>

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/comm/device/cuda_memory.h"
#include "engine/comm/device/peers/peer_link_fabric.h"
#include "engine/comm/ucx/ucx_link_fabric.h"
#include "engine/cuda/device/cuda_peer_opener.h"

namespace skein::engine {
namespace {

class CudaPeerMemory : public PeerMemory {
 public:
  CudaPeerMemory(int device, std::shared_ptr<PeerOpener> opener)
      : opener_(std::move(opener)), memory_(device) {}

  absl::Status Open() { return memory_.Open(); }

  int64_t PieceBytes() const override { return memory_.PieceBytes(); }
  absl::StatusOr<std::byte*> Scratch(size_t bytes) override { return memory_.Scratch(bytes); }
  void Copy(std::byte* to, std::span<const std::byte> from) override { memory_.Copy(to, from); }
  void Sum(std::span<const void* const> sources, void* out, int64_t count, DType dtype) override {
    memory_.Sum(sources, out, count, dtype);
  }

  absl::StatusOr<PeerPlace> Export(const std::byte* data) override { return opener_->Export(data); }
  absl::StatusOr<const std::byte*> Import(const PeerPlace& place) override;
  absl::Status Finish() override { return memory_.Finish(); }

 private:
  const std::shared_ptr<PeerOpener> opener_;
  std::map<const std::byte*, std::shared_ptr<std::byte>> opened_;  // by where the allocation begins
  CudaMemory memory_;  // the last: its work reads what is opened
};

absl::StatusOr<const std::byte*> CudaPeerMemory::Import(const PeerPlace& place) {
  const absl::StatusOr<std::shared_ptr<std::byte>> opened = opener_->Open(place);
  if (!opened.ok()) return opened.status();
  opened_.try_emplace(opened->get() - place.offset, *opened);  // the first keeps it open
  return opened->get();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Fabric>> MakeCudaPeerFabric(std::shared_ptr<LinkFabric> hosts,
                                                           int device) {
  const absl::Status status = CheckCudaDevice(device);
  if (!status.ok()) return status;
  auto opener = MakeCudaPeerOpener(absl::StrCat("cuda:", device));
  if (!opener.ok()) return opener.status();
  return std::make_unique<PeerLinkFabric>(
      std::move(hosts),
      [device, opener = *opener]() -> absl::StatusOr<std::unique_ptr<PeerMemory>> {
        auto memory = std::make_unique<CudaPeerMemory>(device, opener);
        const absl::Status opened = memory->Open();
        if (!opened.ok()) return opened;
        return memory;
      });
}

absl::StatusOr<std::unique_ptr<Fabric>> MakeCudaPeerFabric(const UcxOptions& hosts, int device) {
  const absl::Status status = CheckCudaDevice(device);
  if (!status.ok()) return status;
  auto fabric = MakeUcxLinkFabric(hosts);
  if (!fabric.ok()) return fabric.status();
  return MakeCudaPeerFabric(std::shared_ptr<LinkFabric>(*std::move(fabric)), device);
}

}  // namespace skein::engine
