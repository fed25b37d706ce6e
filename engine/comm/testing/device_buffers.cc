#include "engine/comm/testing/device_buffers.h"

#include <mutex>
#include <utility>
#include <vector>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr size_t kSlabBytes = size_t{16} << 20;
constexpr size_t kAlign = 256;

// Slabs of the device, each for one communicator at a time. None is freed before the end: others
// may have it open.
class Slabs {
 public:
  explicit Slabs(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  ~Slabs() {
    for (std::byte* slab : all_) device_->Free(slab, kSlabBytes);
  }

  std::byte* Take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      all_.push_back(static_cast<std::byte*>(device_->Alloc(kSlabBytes).value()));
      free_.push_back(all_.back());
    }
    std::byte* const slab = free_.back();
    free_.pop_back();
    return slab;
  }
  void GiveBack(std::byte* slab) {
    const std::lock_guard lock(mutex_);
    free_.push_back(slab);
  }
  Device* device() const { return device_.get(); }

 private:
  const std::shared_ptr<Device> device_;
  std::mutex mutex_;
  std::vector<std::byte*> all_, free_;
};

// The device's side of one call's buffers.
class Buffers {
 public:
  Buffers(Device* device, std::byte* slab) : device_(device), slab_(slab) {}

  std::span<std::byte> Take(std::span<const std::byte> host) {
    const std::span<std::byte> taken(slab_ + used_, host.size());
    used_ += (host.size() + kAlign - 1) / kAlign * kAlign;
    SKEIN_CHECK(used_ <= kSlabBytes);
    (void)device_->Copy(taken.data(), host.data(), host.size(), CopyKind::kHostToDevice);
    return taken;
  }
  void BringBack(std::span<std::byte> host, std::span<const std::byte> far) {
    (void)device_->Copy(host.data(), far.data(), host.size(), CopyKind::kDeviceToHost);
    (void)device_->Synchronize();
  }

 private:
  Device* const device_;
  std::byte* const slab_;
  size_t used_ = 0;
};

class BufferedCommunicator final : public Communicator {
 public:
  BufferedCommunicator(std::unique_ptr<Communicator> on_device, std::shared_ptr<Slabs> slabs)
      : on_device_(std::move(on_device)), slabs_(std::move(slabs)), slab_(slabs_->Take()) {}
  ~BufferedCommunicator() override { slabs_->GiveBack(slab_); }

  int Rank() const override { return on_device_->Rank(); }
  int Size() const override { return on_device_->Size(); }
  void Tag(uint64_t tag) override { on_device_->Tag(tag); }
  void Abort(const absl::Status& reason) override { on_device_->Abort(reason); }

  absl::Status AllReduce(void* data, int64_t count, DType dtype, CommDeadline deadline) override {
    const std::span host(static_cast<std::byte*>(data), Bytes(count, dtype));
    Buffers buffers(slabs_->device(), slab_);
    const auto far = buffers.Take(host);
    const absl::Status end = on_device_->AllReduce(far.data(), count, dtype, deadline);
    buffers.BringBack(host, far);
    return end;
  }

  absl::Status AllGather(std::span<const std::byte> send, std::span<std::byte> receive,
                         CommDeadline deadline) override {
    Buffers buffers(slabs_->device(), slab_);
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
    Buffers buffers(slabs_->device(), slab_);
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
    Buffers buffers(slabs_->device(), slab_);
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
    Buffers buffers(slabs_->device(), slab_);
    const auto out = buffers.Take(send), in = buffers.Take(receive);
    const absl::Status end = on_device_->SendRecv(out, to, in, from, deadline);
    buffers.BringBack(receive, in);
    return end;
  }

  absl::Status Broadcast(std::span<std::byte> data, int root, CommDeadline deadline) override {
    Buffers buffers(slabs_->device(), slab_);
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
  const std::shared_ptr<Slabs> slabs_;
  std::byte* const slab_;
};

class BufferedFabric final : public Fabric {
 public:
  BufferedFabric(std::unique_ptr<Fabric> on_device, std::shared_ptr<Device> device)
      : on_device_(std::move(on_device)), slabs_(std::make_shared<Slabs>(std::move(device))) {}

  const std::string& Address() const override { return on_device_->Address(); }
  absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(GroupId id,
                                                          std::span<const std::string> addresses,
                                                          int rank) override {
    auto group = on_device_->MakeGroup(id, addresses, rank);
    if (!group.ok()) return group;
    return std::make_unique<BufferedCommunicator>(*std::move(group), slabs_);
  }

 private:
  const std::unique_ptr<Fabric> on_device_;
  const std::shared_ptr<Slabs> slabs_;
};

}  // namespace

std::unique_ptr<Fabric> MakeBufferedFabric(std::unique_ptr<Fabric> on_device,
                                           std::shared_ptr<Device> device) {
  return std::make_unique<BufferedFabric>(std::move(on_device), std::move(device));
}

}  // namespace skein::engine
