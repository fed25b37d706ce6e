#include "engine/comm/testing_far_fabric.h"

#include <list>
#include <utility>
#include <vector>

#include "engine/comm/testing_far_peer.h"
#include "engine/comm/testing_near_fabric.h"
#include "engine/device/far_device.h"

namespace skein::engine {
namespace {

constexpr size_t kFarBytes = size_t{512} << 20;

// The device's side of one call's buffers.
class Buffers {
 public:
  explicit Buffers(FarDevice* device) : device_(device) {}
  ~Buffers() {
    for (const auto& [far, bytes] : all_) device_->Free(far, bytes);
  }

  std::span<std::byte> Take(std::span<const std::byte> host) {
    void* far = device_->Alloc(host.size()).value();
    all_.emplace_back(far, host.size());
    (void)device_->Copy(far, host.data(), host.size(), CopyKind::kHostToDevice);
    return {static_cast<std::byte*>(far), host.size()};
  }
  void BringBack(std::span<std::byte> host, std::span<const std::byte> far) {
    (void)device_->Copy(host.data(), far.data(), host.size(), CopyKind::kDeviceToHost);
    (void)device_->Synchronize();
  }

 private:
  FarDevice* const device_;
  std::list<std::pair<void*, size_t>> all_;
};

class FarCommunicator final : public Communicator {
 public:
  FarCommunicator(std::unique_ptr<Communicator> on_device, std::shared_ptr<FarDevice> device)
      : on_device_(std::move(on_device)), device_(std::move(device)) {}

  int Rank() const override { return on_device_->Rank(); }
  int Size() const override { return on_device_->Size(); }
  void Abort(const absl::Status& reason) override { on_device_->Abort(reason); }

  absl::Status AllReduce(void* data, int64_t count, DType dtype, CommDeadline deadline) override {
    const std::span host(static_cast<std::byte*>(data), Bytes(count, dtype));
    Buffers buffers(device_.get());
    const auto far = buffers.Take(host);
    const absl::Status end = on_device_->AllReduce(far.data(), count, dtype, deadline);
    buffers.BringBack(host, far);
    return end;
  }

  absl::Status AllGather(std::span<const std::byte> send, std::span<std::byte> receive,
                         CommDeadline deadline) override {
    Buffers buffers(device_.get());
    const auto far = buffers.Take(receive);
    const bool own_place = send.data() >= receive.data() &&
                           send.data() < receive.data() + receive.size() && !send.empty();
    const auto out =
        own_place ? far.subspan(static_cast<size_t>(send.data() - receive.data()), send.size())
                  : buffers.Take(send);
    const absl::Status end = on_device_->AllGather(out, far, deadline);
    buffers.BringBack(receive, far);
    return end;
  }

  absl::Status ReduceScatter(const void* send, void* receive, int64_t count, DType dtype,
                             CommDeadline deadline) override {
    const size_t part = Bytes(count, dtype);
    const std::span host(static_cast<std::byte*>(receive), part);
    Buffers buffers(device_.get());
    const auto out = buffers.Take(
        {static_cast<const std::byte*>(send), part * static_cast<size_t>(on_device_->Size())});
    const auto in = buffers.Take(host);
    const absl::Status end =
        on_device_->ReduceScatter(out.data(), in.data(), count, dtype, deadline);
    buffers.BringBack(host, in);
    return end;
  }

  absl::Status AllToAll(std::span<const std::span<const std::byte>> send,
                        std::span<const std::span<std::byte>> receive,
                        CommDeadline deadline) override {
    Buffers buffers(device_.get());
    std::vector<std::span<const std::byte>> out;
    std::vector<std::span<std::byte>> in;
    for (const auto& part : send) out.push_back(buffers.Take(part));
    for (const auto& part : receive) in.push_back(buffers.Take(part));
    const absl::Status end = on_device_->AllToAll(out, in, deadline);
    for (size_t i = 0; i < in.size(); ++i) buffers.BringBack(receive[i], in[i]);
    return end;
  }

  absl::Status SendRecv(std::span<const std::byte> send, int to, std::span<std::byte> receive,
                        int from, CommDeadline deadline) override {
    Buffers buffers(device_.get());
    const auto out = buffers.Take(send), in = buffers.Take(receive);
    const absl::Status end = on_device_->SendRecv(out, to, in, from, deadline);
    buffers.BringBack(receive, in);
    return end;
  }

  absl::Status Broadcast(std::span<std::byte> data, int root, CommDeadline deadline) override {
    Buffers buffers(device_.get());
    const auto far = buffers.Take(data);
    const absl::Status end = on_device_->Broadcast(far, root, deadline);
    buffers.BringBack(data, far);
    return end;
  }

 private:
  static size_t Bytes(int64_t count, DType dtype) {
    return static_cast<size_t>(count) * BytesOf(dtype);
  }

  const std::unique_ptr<Communicator> on_device_;
  const std::shared_ptr<FarDevice> device_;
};

class FarFabric final : public Fabric {
 public:
  FarFabric(std::unique_ptr<Fabric> below, std::shared_ptr<FarDevice> device, DevicePath path)
      : device_(std::move(device)), on_device_(MakeDeviceFabric(std::move(below), device_, path)) {}

  const std::string& Address() const override { return on_device_->Address(); }
  absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(GroupId id,
                                                          std::span<const std::string> addresses,
                                                          int rank) override {
    auto group = on_device_->MakeGroup(id, addresses, rank);
    if (!group.ok()) return group;
    return std::make_unique<FarCommunicator>(*std::move(group), device_);
  }

 private:
  const std::shared_ptr<FarDevice> device_;
  const std::unique_ptr<Fabric> on_device_;
};

}  // namespace

std::unique_ptr<Fabric> MakeFarFabric(std::unique_ptr<Fabric> hosts, DevicePath path) {
  auto device = std::make_shared<FarDevice>(kFarBytes);
  if (path == DevicePath::kOnDevice) hosts = MakeNearFabric(std::move(hosts), device);
  return std::make_unique<FarFabric>(std::move(hosts), device, path);
}

std::unique_ptr<Fabric> MakeFarPeers() {
  auto device = std::make_shared<FarDevice>(kFarBytes);
  return std::make_unique<FarFabric>(MakeFarPeerFabric(device), device, DevicePath::kOnDevice);
}

}  // namespace skein::engine
