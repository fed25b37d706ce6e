#include "engine/comm/device/device_fabric.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace skein::engine {
namespace {

// What both ways have in common: a call that fails here ends the group.
class BehindDevice : public Communicator {
 public:
  BehindDevice(std::unique_ptr<Communicator> below, std::shared_ptr<Device> device)
      : below_(std::move(below)), device_(std::move(device)) {}

  int Rank() const override { return below_->Rank(); }
  int Size() const override { return below_->Size(); }
  void Tag(uint64_t tag) override { below_->Tag(tag); }
  void Abort(const absl::Status& reason) override { below_->Abort(reason); }

 protected:
  absl::Status Checked(absl::Status status) {
    if (!status.ok()) below_->Abort(status);
    return status;
  }
  // Until the device has done what it was asked for.
  absl::Status Reach() { return Checked(device_->Synchronize()); }

  const std::unique_ptr<Communicator> below_;
  const std::shared_ptr<Device> device_;
};

class OnDevice final : public BehindDevice {
 public:
  using BehindDevice::BehindDevice;

  absl::Status AllReduce(void* data, int64_t count, DType dtype, CommDeadline deadline) override {
    const absl::Status reached = Reach();
    return reached.ok() ? below_->AllReduce(data, count, dtype, deadline) : reached;
  }
  absl::Status AllGather(std::span<const std::byte> send, std::span<std::byte> receive,
                         CommDeadline deadline) override {
    const absl::Status reached = Reach();
    return reached.ok() ? below_->AllGather(send, receive, deadline) : reached;
  }
  absl::Status ReduceScatter(const void* send, void* receive, int64_t count, DType dtype,
                             CommDeadline deadline) override {
    const absl::Status reached = Reach();
    return reached.ok() ? below_->ReduceScatter(send, receive, count, dtype, deadline) : reached;
  }
  absl::Status AllToAll(std::span<const std::span<const std::byte>> send,
                        std::span<const std::span<std::byte>> receive,
                        CommDeadline deadline) override {
    const absl::Status reached = Reach();
    return reached.ok() ? below_->AllToAll(send, receive, deadline) : reached;
  }
  absl::Status SendRecv(std::span<const std::byte> send, int to, std::span<std::byte> receive,
                        int from, CommDeadline deadline) override {
    const absl::Status reached = Reach();
    return reached.ok() ? below_->SendRecv(send, to, receive, from, deadline) : reached;
  }
  absl::Status Broadcast(std::span<std::byte> data, int root, CommDeadline deadline) override {
    const absl::Status reached = Reach();
    return reached.ok() ? below_->Broadcast(data, root, deadline) : reached;
  }
};

class HostStaged final : public BehindDevice {
 public:
  using BehindDevice::BehindDevice;

  absl::Status AllReduce(void* data, int64_t count, DType dtype, CommDeadline deadline) override {
    const size_t bytes = static_cast<size_t>(count) * BytesOf(dtype);
    const std::span<std::byte> host = Host(bytes);
    absl::Status status = Fetch(host.data(), {static_cast<std::byte*>(data), bytes});
    if (status.ok()) status = Reach();
    if (status.ok()) status = below_->AllReduce(host.data(), count, dtype, deadline);
    return status.ok() ? Bring({static_cast<std::byte*>(data), bytes}, host.data()) : status;
  }

  absl::Status AllGather(std::span<const std::byte> send, std::span<std::byte> receive,
                         CommDeadline deadline) override {
    const std::span<std::byte> host = Host(receive.size());
    const std::span<std::byte> own =
        host.subspan(static_cast<size_t>(Rank()) * send.size(), send.size());
    absl::Status status = Fetch(own.data(), send);
    if (status.ok()) status = Reach();
    if (status.ok()) status = below_->AllGather(own, host, deadline);
    return status.ok() ? Bring(receive, host.data()) : status;
  }

  absl::Status ReduceScatter(const void* send, void* receive, int64_t count, DType dtype,
                             CommDeadline deadline) override {
    const size_t part = static_cast<size_t>(count) * BytesOf(dtype);
    const size_t all = part * static_cast<size_t>(Size());
    const std::span<std::byte> host = Host(all + part);
    absl::Status status = Fetch(host.data(), {static_cast<const std::byte*>(send), all});
    if (status.ok()) status = Reach();
    if (status.ok()) {
      status = below_->ReduceScatter(host.data(), host.data() + all, count, dtype, deadline);
    }
    return status.ok() ? Bring({static_cast<std::byte*>(receive), part}, host.data() + all)
                       : status;
  }

  absl::Status AllToAll(std::span<const std::span<const std::byte>> send,
                        std::span<const std::span<std::byte>> receive,
                        CommDeadline deadline) override {
    size_t bytes = 0;
    for (const auto& part : send) bytes += part.size();
    for (const auto& part : receive) bytes += part.size();
    std::byte* at = Host(bytes).data();
    std::vector<std::span<const std::byte>> out;
    std::vector<std::span<std::byte>> in;
    absl::Status status;
    for (const auto& part : send) {
      if (status.ok()) status = Fetch(at, part);
      out.emplace_back(at, part.size());
      at += part.size();
    }
    for (const auto& part : receive) {
      in.emplace_back(at, part.size());
      at += part.size();
    }
    if (status.ok()) status = Reach();
    if (status.ok()) status = below_->AllToAll(out, in, deadline);
    for (size_t i = 0; i < in.size() && status.ok(); ++i) {
      status = Bring(receive[i], in[i].data());
    }
    return status;
  }

  absl::Status SendRecv(std::span<const std::byte> send, int to, std::span<std::byte> receive,
                        int from, CommDeadline deadline) override {
    const std::span<std::byte> host = Host(send.size() + receive.size());
    const std::span<std::byte> out = host.first(send.size()), in = host.subspan(send.size());
    absl::Status status = Fetch(out.data(), send);
    if (status.ok()) status = Reach();
    if (status.ok()) status = below_->SendRecv(out, to, in, from, deadline);
    return status.ok() ? Bring(receive, in.data()) : status;
  }

  absl::Status Broadcast(std::span<std::byte> data, int root, CommDeadline deadline) override {
    const std::span<std::byte> host = Host(data.size());
    absl::Status status = Rank() == root ? Fetch(host.data(), data) : absl::OkStatus();
    if (status.ok()) status = Reach();
    if (status.ok()) status = below_->Broadcast(host, root, deadline);
    return status.ok() && Rank() != root ? Bring(data, host.data()) : status;
  }

 private:
  // Valid until the next call. What was brought from here has been read (Device::Copy).
  std::span<std::byte> Host(size_t bytes) {
    if (host_.size() < bytes) host_.resize(bytes);
    return std::span(host_).first(bytes);
  }
  // Both are queued.
  absl::Status Fetch(std::byte* to, std::span<const std::byte> from) {
    if (from.empty()) return absl::OkStatus();
    return Checked(device_->Copy(to, from.data(), from.size(), CopyKind::kDeviceToHost));
  }
  absl::Status Bring(std::span<std::byte> to, const std::byte* from) {
    if (to.empty()) return absl::OkStatus();
    return Checked(device_->Copy(to.data(), from, to.size(), CopyKind::kHostToDevice));
  }

  std::vector<std::byte> host_;
};

class DeviceFabric final : public Fabric {
 public:
  DeviceFabric(std::unique_ptr<Fabric> below, std::shared_ptr<Device> device, DevicePath path)
      : below_(std::move(below)), device_(std::move(device)), path_(path) {}

  const std::string& Address() const override { return below_->Address(); }

  absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(GroupId id,
                                                          std::span<const std::string> addresses,
                                                          int rank) override {
    auto group = below_->MakeGroup(id, addresses, rank);
    if (!group.ok()) return group;
    return MakeDeviceCommunicator(*std::move(group), device_, path_);
  }

 private:
  const std::unique_ptr<Fabric> below_;
  const std::shared_ptr<Device> device_;
  const DevicePath path_;
};

}  // namespace

std::unique_ptr<Communicator> MakeDeviceCommunicator(std::unique_ptr<Communicator> below,
                                                     std::shared_ptr<Device> device,
                                                     DevicePath path) {
  if (path == DevicePath::kOnDevice) {
    return std::make_unique<OnDevice>(std::move(below), std::move(device));
  }
  return std::make_unique<HostStaged>(std::move(below), std::move(device));
}

std::unique_ptr<Fabric> MakeDeviceFabric(std::unique_ptr<Fabric> below,
                                         std::shared_ptr<Device> device, DevicePath path) {
  return std::make_unique<DeviceFabric>(std::move(below), std::move(device), path);
}

}  // namespace skein::engine
