#include "engine/comm/device/kernels/kernel_memory.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace skein::engine {
namespace {

constexpr size_t kAlign = 256;
constexpr size_t kZerosBytes = 1 << 20;

size_t Aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

bool EndsAt(const std::pair<std::byte* const, size_t>& stretch, const std::byte* place) {
  return stretch.first + stretch.second == place;
}

}  // namespace

absl::StatusOr<std::unique_ptr<KernelMemory>> KernelMemory::Reserve(
    std::shared_ptr<Device> device, std::shared_ptr<CopyStream> copies, size_t bytes,
    Clock::duration wait_max) {
  auto memory = std::make_unique<KernelMemory>(std::move(device), wait_max);
  const absl::StatusOr<std::byte*> all = memory->Allocate(Aligned(bytes));
  if (!all.ok()) return all.status();
  memory->Free({*all, Aligned(bytes)});
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
  // The smallest that is large enough, so that groups of a size use what another of that size used.
  auto found = free_.end();
  for (auto one = free_.begin(); one != free_.end(); ++one) {
    const bool fits = one->second >= bytes;
    if (fits && (found == free_.end() || one->second < found->second)) found = one;
  }
  if (found == free_.end()) return Lacks(bytes, now);
  const Stretch taken = {found->first, bytes};
  const Stretch rest = {found->first + bytes, found->second - bytes};
  free_.erase(found);
  if (rest.second > 0) Free(rest);
  const absl::Status cleared = Clear(taken);
  if (!cleared.ok()) {
    Free(taken);
    return cleared;
  }
  lot->memory.push_back(taken);
  return taken.first;
}

// Joins it to its neighbours, so that a larger group may have what smaller ones had.
void KernelMemory::Free(const Stretch& stretch) {
  auto at = free_.insert(stretch).first;
  if (at != free_.begin() && EndsAt(*std::prev(at), at->first)) {
    const auto before = std::prev(at);
    before->second += at->second;
    free_.erase(at);
    at = before;
  }
  const auto after = std::next(at);
  if (after == free_.end() || !EndsAt(*at, after->first)) return;
  at->second += after->second;
  free_.erase(after);
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
    resting_.emplace_back(now + rest_, std::move(lot));
  } else {
    Free(lot.memory);
  }
}

void KernelMemory::TakeRested(Clock::time_point now) {
  const auto rested = std::partition(resting_.begin(), resting_.end(),
                                     [now](const auto& one) { return one.first > now; });
  for (auto one = rested; one != resting_.end(); ++one) {
    Free(one->second.memory);
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
