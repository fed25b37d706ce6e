#include "engine/comm/device/kernels/kernel_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace skein::engine {
namespace {

constexpr size_t kAlign = 256;
constexpr size_t kZerosBytes = 1 << 20;

size_t Aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

absl::StatusOr<std::unique_ptr<KernelMemory>> KernelMemory::Reserve(
    std::shared_ptr<Device> device, std::shared_ptr<CopyStream> copies, size_t bytes) {
  auto memory = std::make_unique<KernelMemory>(std::move(device));
  const absl::StatusOr<std::byte*> all = memory->Allocate(Aligned(bytes));
  if (!all.ok()) return all.status();
  memory->free_.emplace_back(*all, Aligned(bytes));
  memory->copies_ = std::move(copies);
  return memory;
}

KernelMemory::~KernelMemory() {
  resting_.clear();
  for (const auto& [memory, bytes] : owned_) device_->Free(memory, bytes);
}

absl::StatusOr<std::byte*> KernelMemory::Allocate(size_t bytes) {
  const absl::StatusOr<void*> memory = device_->Alloc(bytes);
  if (!memory.ok()) return memory.status();
  owned_.emplace_back(*memory, bytes);
  const absl::Status cleared = device_->Synchronize();
  if (!cleared.ok()) return cleared;
  return static_cast<std::byte*>(*memory);
}

absl::StatusOr<std::byte*> KernelMemory::Take(size_t bytes, Clock::time_point now, Lot* lot) {
  const std::lock_guard lock(mutex_);
  bytes = Aligned(bytes);
  if (copies_ == nullptr) return Allocate(bytes);
  TakeRested(now);
  const auto fits = [bytes](const Stretch& stretch) { return stretch.second >= bytes; };
  // Groups of a size use what another of that size used before.
  auto found = std::find_if(free_.begin(), free_.end(),
                            [bytes](const Stretch& stretch) { return stretch.second == bytes; });
  if (found == free_.end()) found = std::find_if(free_.begin(), free_.end(), fits);
  if (found == free_.end()) return Lacks(bytes, now);
  const Stretch taken = {found->first, bytes};
  *found = {found->first + bytes, found->second - bytes};
  if (found->second == 0) free_.erase(found);
  const absl::Status cleared = Clear(taken);
  if (!cleared.ok()) {
    free_.push_back(taken);
    return cleared;
  }
  lot->memory.push_back(taken);
  return taken.first;
}

absl::Status KernelMemory::Lacks(size_t bytes, Clock::time_point now) const {
  if (resting_.empty()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory is left for another group's kernels: ", bytes, " bytes"));
  }
  const auto first =
      std::min_element(resting_.begin(), resting_.end(),
                       [](const auto& one, const auto& other) { return one.first < other.first; });
  const auto left = std::chrono::ceil<std::chrono::seconds>(first->first - now);
  return absl::UnavailableError(
      absl::StrCat(bytes, " bytes for a group's kernels are free in ", left.count(),
                   " s at the earliest: kernels of an earlier group may still write to them"));
}

void KernelMemory::GiveBack(Lot lot, bool written, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (written) {
    resting_.emplace_back(now + kKernelMemoryRest, std::move(lot));
  } else {
    free_.insert(free_.end(), lot.memory.begin(), lot.memory.end());
  }
}

void KernelMemory::TakeRested(Clock::time_point now) {
  const auto rested = std::partition(resting_.begin(), resting_.end(),
                                     [now](const auto& one) { return one.first > now; });
  for (auto one = rested; one != resting_.end(); ++one) {
    free_.insert(free_.end(), one->second.memory.begin(), one->second.memory.end());
  }
  resting_.erase(rested, resting_.end());
}

absl::Status KernelMemory::Clear(const Stretch& stretch) {
  static const std::vector<std::byte> zeros(kZerosBytes);
  for (size_t at = 0; at < stretch.second; at += kZerosBytes) {
    const size_t bytes = std::min(kZerosBytes, stretch.second - at);
    const absl::Status queued = copies_->Copy(stretch.first + at, zeros.data(), bytes);
    if (!queued.ok()) return queued;
  }
  return AwaitCopies(copies_.get());
}

}  // namespace skein::engine
