#include "engine/device/far_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "engine/base/check.h"

namespace skein::engine {
namespace {

constexpr size_t kPageBytes = 4096;

size_t RoundUp(size_t bytes) {
  return std::max(kPageBytes, (bytes + kPageBytes - 1) / kPageBytes * kPageBytes);
}

// All devices that there are.
struct Registry {
  std::mutex mu;
  std::set<const FarDevice*> devices;
};

Registry& TheRegistry() {
  static Registry registry;
  return registry;
}

class FarCopyStream final : public CopyStream {
 public:
  explicit FarCopyStream(std::shared_ptr<FarDevice> device) : device_(std::move(device)) {}
  ~FarCopyStream() override {
    while (!queue_.empty()) RunOne();
  }

  bool IsDevice(const void* pointer) const override {
    return device_ != nullptr && device_->Owns(pointer);
  }

  absl::StatusOr<void*> AllocHost(size_t bytes) override {
    return std::aligned_alloc(kPageBytes, RoundUp(bytes));
  }
  void FreeHost(void* pointer, size_t) override { std::free(pointer); }

  absl::Status Copy(void* to, const void* from, size_t bytes) override {
    const std::lock_guard lock(mu_);
    queue_.push_back({to, from, bytes});
    ++queued_;
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> Mark() override {
    const std::lock_guard lock(mu_);
    return queued_;
  }

  absl::StatusOr<bool> Done(uint64_t mark) override {
    const std::lock_guard lock(mu_);
    if (done_ >= mark) return true;
    RunOne();
    return false;  // it will be seen at the next look
  }

 private:
  struct QueuedCopy {
    void* to = nullptr;
    const void* from = nullptr;
    size_t bytes = 0;
  };

  void* Near(const void* pointer) const {
    return device_ == nullptr ? const_cast<void*>(pointer) : device_->Near(pointer);
  }

  void RunOne() {
    const QueuedCopy copy = queue_.front();
    queue_.pop_front();
    std::memmove(Near(copy.to), Near(copy.from), copy.bytes);
    ++done_;
  }

  const std::shared_ptr<FarDevice> device_;
  std::mutex mu_;
  std::deque<QueuedCopy> queue_;
  uint64_t queued_ = 0;
  uint64_t done_ = 0;
};

class SharedFarDevice final : public Device {
 public:
  explicit SharedFarDevice(std::shared_ptr<FarDevice> device) : device_(std::move(device)) {}
  absl::StatusOr<void*> Alloc(size_t bytes) override { return device_->Alloc(bytes); }
  void Free(void* pointer, size_t bytes) override { device_->Free(pointer, bytes); }
  absl::Status Copy(void* to, const void* from, size_t bytes, CopyKind kind) override {
    return device_->Copy(to, from, bytes, kind);
  }
  absl::Status Synchronize() override { return device_->Synchronize(); }
  absl::StatusOr<MemoryUse> MemoryInfo() override { return device_->MemoryInfo(); }
  bool IsHost() const override { return false; }

 private:
  const std::shared_ptr<FarDevice> device_;
};

}  // namespace

FarDevice::FarDevice(size_t bytes) : bytes_(RoundUp(bytes)) {
  const int fd = memfd_create("far-device", MFD_CLOEXEC);
  SKEIN_CHECK(fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes_)) == 0);
  void* near = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  void* far = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  close(fd);
  SKEIN_CHECK(near != MAP_FAILED && far != MAP_FAILED);
  near_ = static_cast<std::byte*>(near);
  far_ = static_cast<std::byte*>(far);
  free_[0] = bytes_;
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mu);
  registry.devices.insert(this);
}

FarDevice::~FarDevice() {
  RunAll();
  {
    Registry& registry = TheRegistry();
    const std::lock_guard lock(registry.mu);
    registry.devices.erase(this);
  }
  munmap(near_, bytes_);
  munmap(far_, bytes_);
}

absl::StatusOr<void*> FarDevice::Alloc(size_t bytes) {
  const size_t wanted = RoundUp(bytes);
  const std::lock_guard lock(memory_mu_);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [offset, room] = *it;
    if (room < wanted) continue;
    free_.erase(it);
    if (room > wanted) free_[offset + wanted] = room - wanted;
    std::memset(near_ + offset, 0, wanted);
    return far_ + offset;
  }
  return absl::ResourceExhaustedError("far device: wanted " + std::to_string(bytes) +
                                      " bytes, of " + std::to_string(bytes_) +
                                      " in all there are not so many free in one piece");
}

void FarDevice::Free(void* pointer, size_t bytes) {
  if (pointer == nullptr) return;
  SKEIN_CHECK(Owns(pointer));
  RunAll();
  const std::lock_guard lock(memory_mu_);
  const auto offset = static_cast<size_t>(static_cast<std::byte*>(pointer) - far_);
  auto at = free_.emplace(offset, RoundUp(bytes)).first;
  if (const auto next = std::next(at);
      next != free_.end() && at->first + at->second == next->first) {
    at->second += next->second;
    free_.erase(next);
  }
  if (at == free_.begin()) return;
  const auto before = std::prev(at);
  if (before->first + before->second != at->first) return;
  before->second += at->second;
  free_.erase(at);
}

absl::Status FarDevice::Copy(void* to, const void* from, size_t bytes, CopyKind kind) {
  if (bytes == 0) return absl::OkStatus();
  SKEIN_CHECK(Owns(to) == (kind != CopyKind::kDeviceToHost));
  SKEIN_CHECK(Owns(from) == (kind != CopyKind::kHostToDevice));
  if (kind == CopyKind::kHostToDevice) {
    const auto* data = static_cast<const std::byte*>(from);
    Queue([to = Near(to), staged = std::string(reinterpret_cast<const char*>(data), bytes)] {
      std::memcpy(to, staged.data(), staged.size());
    });
  } else {
    Queue([to = Near(to), from = Near(from), bytes] { std::memmove(to, from, bytes); });
  }
  return absl::OkStatus();
}

absl::Status FarDevice::Synchronize() {
  RunAll();
  return absl::OkStatus();
}

absl::StatusOr<MemoryUse> FarDevice::MemoryInfo() {
  const std::lock_guard lock(memory_mu_);
  size_t free = 0;
  for (const auto& [offset, bytes] : free_) free += bytes;
  return MemoryUse{bytes_, free};
}

bool FarDevice::Owns(const void* pointer) const {
  const auto* p = static_cast<const std::byte*>(pointer);
  return p >= far_ && p < far_ + bytes_;
}

void* FarDevice::Near(const void* pointer) const {
  if (!Owns(pointer)) return const_cast<void*>(pointer);
  return near_ + (static_cast<const std::byte*>(pointer) - far_);
}

void FarDevice::Queue(std::function<void()> work) {
  const std::lock_guard lock(queue_mu_);
  queue_.push_back(std::move(work));
}

void FarDevice::RunAll() {
  const std::lock_guard running(run_mu_);
  for (;;) {
    std::function<void()> work;
    {
      const std::lock_guard lock(queue_mu_);
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

std::shared_ptr<CopyStream> MakeFarCopyStream(std::shared_ptr<FarDevice> device) {
  return std::make_shared<FarCopyStream>(std::move(device));
}

void* NearOfAny(const void* pointer) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mu);
  for (const FarDevice* device : registry.devices) {
    if (device->Owns(pointer)) return device->Near(pointer);
  }
  return const_cast<void*>(pointer);
}

std::unique_ptr<Device> ShareFarDevice(std::shared_ptr<FarDevice> device) {
  return std::make_unique<SharedFarDevice>(std::move(device));
}

}  // namespace skein::engine
