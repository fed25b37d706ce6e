#include "engine/comm/testing/near_fabric.h"

#include <utility>
#include <vector>

namespace skein::engine {
namespace {

class NearCommunicator final : public Communicator {
 public:
  NearCommunicator(std::unique_ptr<Communicator> below, std::shared_ptr<FarDevice> device)
      : below_(std::move(below)), device_(std::move(device)) {}

  int Rank() const override { return below_->Rank(); }
  int Size() const override { return below_->Size(); }
  void Tag(uint64_t tag) override { below_->Tag(tag); }
  absl::Status AllReduce(void* data, int64_t count, DType dtype, CommDeadline deadline) override {
    return below_->AllReduce(device_->Near(data), count, dtype, deadline);
  }
  absl::Status AllGather(std::span<const std::byte> send, std::span<std::byte> receive,
                         CommDeadline deadline) override {
    return below_->AllGather(Near(send), Near(receive), deadline);
  }
  absl::Status ReduceScatter(const void* send, void* receive, int64_t count, DType dtype,
                             CommDeadline deadline) override {
    return below_->ReduceScatter(device_->Near(send), device_->Near(receive), count, dtype,
                                 deadline);
  }
  absl::Status AllToAll(std::span<const std::span<const std::byte>> send,
                        std::span<const std::span<std::byte>> receive,
                        CommDeadline deadline) override {
    std::vector<std::span<const std::byte>> out;
    std::vector<std::span<std::byte>> in;
    for (const auto& part : send) out.push_back(Near(part));
    for (const auto& part : receive) in.push_back(Near(part));
    return below_->AllToAll(out, in, deadline);
  }
  absl::Status SendRecv(std::span<const std::byte> send, int to, std::span<std::byte> receive,
                        int from, CommDeadline deadline) override {
    return below_->SendRecv(Near(send), to, Near(receive), from, deadline);
  }
  absl::Status Broadcast(std::span<std::byte> data, int root, CommDeadline deadline) override {
    return below_->Broadcast(Near(data), root, deadline);
  }
  void Abort(const absl::Status& reason) override { below_->Abort(reason); }

 private:
  template <typename Byte>
  std::span<Byte> Near(std::span<Byte> far) const {
    return {device_->NearOf(far.data()), far.size()};
  }

  const std::unique_ptr<Communicator> below_;
  const std::shared_ptr<FarDevice> device_;
};

class NearFabric final : public Fabric {
 public:
  NearFabric(std::shared_ptr<Fabric> below, std::shared_ptr<FarDevice> device)
      : below_(std::move(below)), device_(std::move(device)) {}

  const std::string& Address() const override { return below_->Address(); }
  absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(GroupId id,
                                                          std::span<const std::string> addresses,
                                                          int rank) override {
    auto group = below_->MakeGroup(id, addresses, rank);
    if (!group.ok()) return group;
    return std::make_unique<NearCommunicator>(*std::move(group), device_);
  }

 private:
  const std::shared_ptr<Fabric> below_;
  const std::shared_ptr<FarDevice> device_;
};

}  // namespace

std::unique_ptr<Fabric> MakeNearFabric(std::shared_ptr<Fabric> hosts,
                                       std::shared_ptr<FarDevice> device) {
  return std::make_unique<NearFabric>(std::move(hosts), std::move(device));
}

}  // namespace skein::engine
