#include "engine/device/copy_stream.h"

#include <gtest/gtest.h>

#include <chrono>

namespace skein::engine {
namespace {

// Its copies end at the n-th look; never, if n is negative.
class SlowCopies : public CopyStream {
 public:
  explicit SlowCopies(int looks) : looks_(looks) {}
  bool IsDevice(const void*) const override { return false; }
  absl::StatusOr<void*> AllocHost(size_t) override { return nullptr; }
  void FreeHost(void*, size_t) override {}
  absl::Status Copy(void*, const void*, size_t) override { return absl::OkStatus(); }
  absl::Status CopyPieces(std::span<const CopyPiece>) override { return absl::OkStatus(); }
  absl::StatusOr<uint64_t> Mark() override { return 1; }
  absl::StatusOr<bool> Done(uint64_t) override { return looks_ >= 0 && looks_-- == 0; }

 private:
  int looks_;
};

TEST(AwaitMark, ReturnsWhenTheCopiesAreDone) {
  SlowCopies copies(5000);
  EXPECT_TRUE(AwaitMark(&copies, 1).ok());
}

// A device that is late by the clock, but had no looks yet, is not taken for hung.
TEST(AwaitMark, AProcessThatStoodStillIsNotTheDevicesFault) {
  SlowCopies copies(900);
  EXPECT_TRUE(AwaitMark(&copies, 1, std::chrono::nanoseconds(0)).ok());
}

TEST(AwaitMarkDeathTest, AHungDeviceEndsTheProcessWithItsCause) {
  SlowCopies copies(-1);
  EXPECT_DEATH((void)AwaitMark(&copies, 1, std::chrono::milliseconds(20)),
               "device copies did not end within 20 ms");
}

}  // namespace
}  // namespace skein::engine
