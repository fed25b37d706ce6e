#include "engine/comm/testing/far_peer.h"

#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "engine/comm/algorithms/reduce.h"
#include "engine/comm/device/peers/peer_link_fabric.h"
#include "engine/comm/ucx/ucx_link_fabric.h"
#include "engine/device/testing/far_peer_opener.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

class FarPeerMemory final : public PeerMemory {
 public:
  FarPeerMemory(std::shared_ptr<FarDevice> device, MayOpen may_open)
      : device_(std::move(device)), may_open_(std::move(may_open)) {}
  ~FarPeerMemory() override {
    if (scratch_ != nullptr) device_->Free(scratch_, scratch_bytes_);
  }

  int64_t PieceBytes() const override { return 4 << 10; }

  absl::StatusOr<std::byte*> Scratch(size_t bytes) override {
    if (bytes > scratch_bytes_) {
      if (scratch_ != nullptr) device_->Free(scratch_, scratch_bytes_);
      scratch_ = device_->Alloc(bytes).value();
      scratch_bytes_ = bytes;
    }
    return static_cast<std::byte*>(scratch_);
  }

  void Copy(std::byte* to, std::span<const std::byte> from) override {
    work_.push_back(
        [to, from] { std::memmove(NearOfAny(to), NearOfAny(from.data()), from.size()); });
  }

  void Sum(std::span<const void* const> sources, void* out, int64_t count, DType dtype) override {
    std::vector<const void*> near;
    for (const void* source : sources) near.push_back(NearOfAny(source));
    work_.push_back([near, out, count, dtype] { SumInOrder(near, NearOfAny(out), count, dtype); });
  }

  absl::StatusOr<PeerPlace> Export(const std::byte* data) override { return opener_->Export(data); }
  absl::StatusOr<const std::byte*> Import(const PeerPlace& place) override {
    const absl::Status may = may_open_ ? may_open_() : absl::OkStatus();
    if (!may.ok()) return may;
    opened_.push_back(opener_->Open(place).value());
    return opened_.back().get();
  }
  absl::Status Finish() override {
    for (const auto& one : work_) one();
    work_.clear();
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<FarDevice> device_;
  const MayOpen may_open_;
  const std::unique_ptr<PeerOpener> opener_ = MakeFarPeerOpener(device_);
  std::vector<std::shared_ptr<std::byte>> opened_;
  std::vector<std::function<void()>> work_;
  void* scratch_ = nullptr;
  size_t scratch_bytes_ = 0;
};

}  // namespace

std::unique_ptr<PeerMemory> MakeFarPeerMemory(std::shared_ptr<FarDevice> device, MayOpen may_open) {
  return std::make_unique<FarPeerMemory>(std::move(device), std::move(may_open));
}

std::unique_ptr<Fabric> MakeFarPeerFabric(std::shared_ptr<LinkFabric> hosts,
                                          std::shared_ptr<FarDevice> device, MayOpen may_open) {
  return std::make_unique<PeerLinkFabric>(
      std::move(hosts), [device, may_open]() -> absl::StatusOr<std::unique_ptr<PeerMemory>> {
        return MakeFarPeerMemory(device, may_open);
      });
}

std::unique_ptr<Fabric> MakeFarPeerFabric(std::shared_ptr<FarDevice> device) {
  auto hosts = MakeUcxLinkFabric({.tls = "self,shm"});
  SKEIN_CHECK_MSG(hosts.ok(), hosts.status().ToString().c_str());
  return MakeFarPeerFabric(std::shared_ptr<LinkFabric>(*std::move(hosts)), std::move(device),
                           nullptr);
}

}  // namespace skein::engine
