#include "engine/device/memory_budget.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

class BudgetedDevice final : public Device {
 public:
  BudgetedDevice(std::unique_ptr<Device> device, std::shared_ptr<MemoryBudget> budget)
      : device_(std::move(device)), budget_(std::move(budget)) {}

  absl::StatusOr<void*> Alloc(size_t bytes) override {
    if (!budget_->Take(DeviceBytes(bytes))) {
      const MemoryUse use = budget_->Use();
      return absl::ResourceExhaustedError(absl::StrCat("wanted ", bytes, " bytes, free are ",
                                                       use.free_bytes, " of a budget of ",
                                                       use.total_bytes));
    }
    absl::StatusOr<void*> pointer = device_->Alloc(bytes);
    if (!pointer.ok()) budget_->Give(DeviceBytes(bytes));
    return pointer;
  }

  void Free(void* pointer, size_t bytes) override {
    device_->Free(pointer, bytes);
    if (pointer != nullptr) budget_->Give(DeviceBytes(bytes));
  }

  absl::Status Copy(void* to, const void* from, size_t bytes, CopyKind kind) override {
    return device_->Copy(to, from, bytes, kind);
  }
  absl::Status Synchronize() override { return device_->Synchronize(); }
  absl::StatusOr<uint64_t> Mark() override { return device_->Mark(); }
  absl::StatusOr<bool> Done(uint64_t mark) override { return device_->Done(mark); }
  absl::StatusOr<MemoryUse> MemoryInfo() override { return budget_->Use(); }
  bool IsHost() const override { return device_->IsHost(); }

 private:
  const std::unique_ptr<Device> device_;
  const std::shared_ptr<MemoryBudget> budget_;
};

}  // namespace

bool MemoryBudget::Take(size_t bytes) {
  std::lock_guard lock(mu_);
  if (bytes > free_) return false;
  free_ -= bytes;
  return true;
}

void MemoryBudget::Give(size_t bytes) {
  std::lock_guard lock(mu_);
  SKEIN_CHECK(bytes <= total_ - free_);
  free_ += bytes;
}

MemoryUse MemoryBudget::Use() const {
  std::lock_guard lock(mu_);
  return {total_, free_};
}

std::unique_ptr<Device> MakeBudgetedDevice(std::unique_ptr<Device> device,
                                           std::shared_ptr<MemoryBudget> budget) {
  return std::make_unique<BudgetedDevice>(std::move(device), std::move(budget));
}

}  // namespace skein::engine
