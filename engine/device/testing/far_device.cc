#include "engine/device/testing/far_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr size_t kPageBytes = 4096;

size_t RoundUp(size_t bytes) {
  return std::max(kPageBytes, (bytes + kPageBytes - 1) / kPageBytes * kPageBytes);
}

int MakeFile(size_t bytes) {
  const int fd = memfd_create("far-device", MFD_CLOEXEC);
  SKEIN_CHECK(fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) == 0);
  return fd;
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

  absl::Status CopyPieces(std::span<const CopyPiece> pieces) override {
    for (const CopyPiece& piece : pieces) (void)Copy(piece.to, piece.from, piece.bytes);
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
  void RunOne() {
    const CopyPiece copy = queue_.front();
    queue_.pop_front();
    std::memmove(NearOfAny(copy.to), NearOfAny(copy.from), copy.bytes);
    ++done_;
  }

  const std::shared_ptr<FarDevice> device_;
  std::mutex mu_;
  std::deque<CopyPiece> queue_;
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
  absl::StatusOr<uint64_t> Mark() override { return device_->Mark(); }
  absl::StatusOr<bool> Done(uint64_t mark) override { return device_->Done(mark); }
  absl::StatusOr<MemoryUse> MemoryInfo() override { return device_->MemoryInfo(); }
  bool IsHost() const override { return false; }

 private:
  const std::shared_ptr<FarDevice> device_;
};

}  // namespace

FarDevice::FarDevice(size_t bytes)
    : bytes_(RoundUp(bytes)),
      file_(MakeFile(bytes_)),
      view_(std::make_unique<FarView>(file_, 0, bytes_)) {
  free_[0] = bytes_;
}

FarDevice::~FarDevice() {
  RunAll();
  view_.reset();
  close(file_);
}

absl::StatusOr<void*> FarDevice::Alloc(size_t bytes) {
  const size_t wanted = RoundUp(bytes);
  const std::lock_guard lock(memory_mu_);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [offset, room] = *it;
    if (room < wanted) continue;
    free_.erase(it);
    if (room > wanted) free_[offset + wanted] = room - wanted;
    allocated_[offset] = wanted;
    std::byte* const memory = view_->far() + offset;
    std::memset(view_->Near(memory), 0, wanted);
    return memory;
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
  const auto offset = static_cast<size_t>(static_cast<std::byte*>(pointer) - view_->far());
  const auto allocated = allocated_.find(offset);
  SKEIN_CHECK(allocated != allocated_.end() && allocated->second == RoundUp(bytes));
  allocated_.erase(allocated);
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

absl::StatusOr<uint64_t> FarDevice::Mark() {
  const std::lock_guard lock(queue_mu_);
  return queued_;
}

absl::StatusOr<bool> FarDevice::Done(uint64_t mark) {
  if (done_ >= mark) return true;
  // Whoever waits runs all there is.
  if (const std::unique_lock running(run_mu_, std::try_to_lock); running.owns_lock()) RunOne();
  return false;  // it will be seen at the next look
}

absl::StatusOr<MemoryUse> FarDevice::MemoryInfo() {
  const std::lock_guard lock(memory_mu_);
  size_t free = 0;
  for (const auto& [offset, bytes] : free_) free += bytes;
  return MemoryUse{bytes_, free};
}

FarDevice::Allocation FarDevice::AllocationOf(const void* pointer) const {
  SKEIN_CHECK(Owns(pointer));
  const auto at = static_cast<size_t>(static_cast<const std::byte*>(pointer) - view_->far());
  const std::lock_guard lock(memory_mu_);
  auto next = allocated_.upper_bound(at);
  SKEIN_CHECK_MSG(next != allocated_.begin(), "not allocated");
  const auto& [offset, bytes] = *std::prev(next);
  SKEIN_CHECK_MSG(at < offset + bytes, "not allocated");
  return {offset, bytes};
}

void FarDevice::Queue(std::function<void()> work) {
  const std::lock_guard lock(queue_mu_);
  queue_.push_back(std::move(work));
  ++queued_;
}

void FarDevice::RunAll() {
  const std::lock_guard running(run_mu_);
  while (RunOne()) {
  }
}

bool FarDevice::RunOne() {
  std::function<void()> work;
  {
    const std::lock_guard lock(queue_mu_);
    if (queue_.empty()) return false;
    work = std::move(queue_.front());
    queue_.pop_front();
  }
  work();
  ++done_;
  return true;
}

std::shared_ptr<CopyStream> MakeFarCopyStream(std::shared_ptr<FarDevice> device) {
  return std::make_shared<FarCopyStream>(std::move(device));
}

std::unique_ptr<Device> ShareFarDevice(std::shared_ptr<FarDevice> device) {
  return std::make_unique<SharedFarDevice>(std::move(device));
}

}  // namespace skein::engine
