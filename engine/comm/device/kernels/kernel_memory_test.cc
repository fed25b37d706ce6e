#include "engine/comm/device/kernels/kernel_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/comm/testing/near_copies.h"
#include "engine/device/cpu_device.h"

namespace skein::engine {
namespace {

using Clock = KernelMemory::Clock;

class KernelMemoryTest : public ::testing::Test {
 protected:
  static constexpr size_t kBytes = 4 << 20;
  static constexpr auto kWaitMax = std::chrono::seconds(7);

  std::byte* Take(size_t bytes, KernelMemory::Lot* lot) {
    const auto taken = memory_->Take(bytes, now_, lot);
    EXPECT_TRUE(taken.ok()) << taken.status();
    return taken.ok() ? *taken : nullptr;
  }
  static bool IsZero(const std::byte* memory, size_t bytes) {
    return std::all_of(memory, memory + bytes, [](std::byte b) { return b == std::byte{0}; });
  }

  Clock::time_point now_ = Clock::now();
  std::unique_ptr<KernelMemory> memory_ =
      *KernelMemory::Reserve(MakeCpuDevice(), MakeNearCopies(), kBytes, kWaitMax);
};

TEST_F(KernelMemoryTest, NothingIsTakenTwice) {
  KernelMemory::Lot lot;
  std::byte* const one = Take(1000, &lot);
  std::byte* const two = Take(kBytes / 2, &lot);
  EXPECT_TRUE(two >= one + 1000 || one >= two + kBytes / 2);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(two) % 256, 0u);
  EXPECT_TRUE(absl::IsResourceExhausted(memory_->Take(kBytes / 2, now_, &lot).status()));
  EXPECT_EQ(lot.memory.size(), 2u);
}

TEST_F(KernelMemoryTest, WhatWasGivenBackRestsAndIsClearedBeforeItIsUsedAgain) {
  KernelMemory::Lot lot;
  std::byte* const one = Take(3 << 20, &lot);
  std::fill_n(one, 3 << 20, std::byte{7});
  bool closed = false;
  lot.opened.push_back(std::shared_ptr<std::byte>(one, [&closed](std::byte*) { closed = true; }));
  memory_->GiveBack(std::move(lot), /*written=*/true, now_);
  lot = {};
  now_ += 2 * kWaitMax - std::chrono::seconds(1);
  EXPECT_TRUE(absl::IsUnavailable(memory_->Take(3 << 20, now_, &lot).status())) << "it rests";
  EXPECT_FALSE(closed) << "a kernel of this rank may still write there";
  now_ += std::chrono::seconds(1);
  std::byte* const again = Take(3 << 20, &lot);
  EXPECT_EQ(again, one);
  EXPECT_TRUE(IsZero(again, 3 << 20));
  EXPECT_TRUE(closed);
}

TEST_F(KernelMemoryTest, WhereNobodyWroteIsUsedAgainAtOnce) {
  std::byte* first = nullptr;
  for (int round = 0; round < 3; ++round) {
    KernelMemory::Lot lot;
    std::byte* const taken = Take(3 << 20, &lot);
    ASSERT_NE(taken, nullptr);
    if (round == 0) first = taken;
    EXPECT_EQ(taken, first);
    EXPECT_TRUE(IsZero(taken, 3 << 20));
    std::fill_n(taken, 3 << 20, std::byte{7});
    memory_->GiveBack(std::move(lot), /*written=*/false, now_);
  }
}

// Groups of two fill the memory, and let it go in any order; one of eight needs all of it.
TEST_F(KernelMemoryTest, WhatSmallerGroupsHadServesALargerOne) {
  constexpr size_t kGroups = 8;
  for (const size_t step : {1, 3, 5, 7}) {
    std::vector<KernelMemory::Lot> lots(kGroups);
    for (KernelMemory::Lot& lot : lots) ASSERT_NE(Take(kBytes / kGroups, &lot), nullptr);
    for (size_t i = 0; i < kGroups; ++i) {
      memory_->GiveBack(std::move(lots[i * step % kGroups]), /*written=*/i % 2 == 0, now_);
    }
    KernelMemory::Lot large;
    EXPECT_TRUE(absl::IsUnavailable(memory_->Take(kBytes, now_, &large).status())) << "half rests";
    now_ += 2 * kWaitMax;
    ASSERT_NE(Take(kBytes, &large), nullptr);
    memory_->GiveBack(std::move(large), /*written=*/false, now_);
  }
}

// Fails its first copies.
class FailingCopies final : public CopyStream {
 public:
  explicit FailingCopies(int failures) : failures_(failures) {}
  bool IsDevice(const void* pointer) const override { return near_->IsDevice(pointer); }
  absl::StatusOr<void*> AllocHost(size_t bytes) override { return near_->AllocHost(bytes); }
  void FreeHost(void* pointer, size_t bytes) override { near_->FreeHost(pointer, bytes); }
  absl::Status Copy(void* to, const void* from, size_t bytes) override {
    if (failures_-- > 0) return absl::InternalError("test");
    return near_->Copy(to, from, bytes);
  }
  absl::Status CopyPieces(std::span<const CopyPiece> pieces) override {
    return near_->CopyPieces(pieces);
  }
  absl::StatusOr<uint64_t> Mark() override { return near_->Mark(); }
  absl::StatusOr<bool> Done(uint64_t mark) override { return near_->Done(mark); }

 private:
  const std::unique_ptr<CopyStream> near_ = MakeNearCopies();
  int failures_;
};

TEST_F(KernelMemoryTest, WhatCouldNotBeClearedIsNotLost) {
  memory_ =
      *KernelMemory::Reserve(MakeCpuDevice(), std::make_unique<FailingCopies>(2), kBytes, kWaitMax);
  KernelMemory::Lot lot;
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(absl::IsInternal(memory_->Take(kBytes, now_, &lot).status()));
  }
  EXPECT_TRUE(lot.memory.empty());
  EXPECT_NE(Take(kBytes, &lot), nullptr);
}

TEST_F(KernelMemoryTest, WithoutAReserveEachIsAllocatedAndKept) {
  memory_ = std::make_unique<KernelMemory>(MakeCpuDevice(), kWaitMax);
  KernelMemory::Lot lot;
  std::byte* const one = Take(64, &lot);
  EXPECT_TRUE(IsZero(one, 64));
  *one = std::byte{1};
  memory_->GiveBack(std::move(lot), /*written=*/true, now_);
  now_ += 4 * kWaitMax;
  EXPECT_NE(Take(64, &lot), one);
}

}  // namespace
}  // namespace skein::engine
