#include "engine/step_progress.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/device/testing/far_device.h"

namespace skein::engine {
namespace {

constexpr size_t kBytes = 1 << 20;

TEST(StepProgress, OnTheHostALayerIsWrittenWhenItIsQueued) {
  std::vector<int> queued;
  StepProgress progress([&](int layer) { queued.push_back(layer); });
  for (int layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(progress.LayersWritten(), layer);
    progress.Queue(layer, nullptr);
    EXPECT_EQ(progress.LayersQueued(), layer + 1);
    EXPECT_EQ(progress.LayersWritten(), layer + 1);
  }
  EXPECT_EQ(queued, (std::vector<int>{0, 1, 2}));
}

TEST(StepProgress, WithoutAnybodyWhoAsksNothingIsMarked) {
  FarDevice device(kBytes);
  StepProgress progress;
  EXPECT_FALSE(progress.tells_layers());
  device.Queue([] {});
  progress.Queue(0, &device);
  progress.End(true);
  EXPECT_EQ(progress.LayersQueued(), 0);
  EXPECT_EQ(progress.LayersWritten(), 0);
}

// Each look lets the far device do one piece of its work.
TEST(StepProgress, OnADeviceALayerIsWrittenWhenTheWorkBeforeItsMarkIsDone) {
  FarDevice device(kBytes);
  StepProgress progress([](int) {});
  int done = 0;
  for (int layer = 0; layer < 2; ++layer) {
    for (int i = 0; i < 2; ++i) device.Queue([&] { ++done; });
    progress.Queue(layer, &device);
  }
  EXPECT_EQ(progress.LayersQueued(), 2);
  EXPECT_EQ(done, 0);
  std::vector<int> seen;
  for (int written = 0; (written = progress.LayersWritten()) < 2;) {
    EXPECT_LE(2 * written, done);
    seen.push_back(written);
  }
  EXPECT_EQ(done, 4);
  EXPECT_EQ(seen.front(), 0);
  EXPECT_EQ(seen.back(), 1);
}

TEST(StepProgress, WhenItHasEndedWellAllLayersAreWritten) {
  FarDevice device(kBytes);
  StepProgress progress([](int) {});
  device.Queue([] {});
  progress.Queue(0, &device);
  EXPECT_EQ(progress.LayersWritten(), 0);
  ASSERT_TRUE(device.Synchronize().ok());
  progress.End(true);
  EXPECT_EQ(progress.LayersWritten(), 1);
}

TEST(StepProgress, WhenItHasFailedNoFurtherLayerIsWritten) {
  FarDevice device(kBytes);
  StepProgress progress([](int) {});
  for (int layer = 0; layer < 2; ++layer) {
    device.Queue([] {});
    progress.Queue(layer, &device);
  }
  while (progress.LayersWritten() < 1) {
  }
  ASSERT_TRUE(device.Synchronize().ok());
  progress.End(false);
  EXPECT_EQ(progress.LayersWritten(), 1);
}

// What cannot be marked is there at the end of the step at the latest, and loses no other layer.
TEST(StepProgress, ALayerThatCannotBeMarkedIsWrittenAtTheEnd) {
  class Unmarked : public FarDevice {
   public:
    using FarDevice::FarDevice;
    absl::StatusOr<uint64_t> Mark() override {
      return ++marked == 2 ? absl::InternalError("no event") : FarDevice::Mark();
    }
    int marked = 0;
  } device(kBytes);
  std::vector<int> queued;
  StepProgress progress([&](int layer) { queued.push_back(layer); });
  for (int layer = 0; layer < 3; ++layer) {
    device.Queue([] {});
    progress.Queue(layer, &device);
  }
  EXPECT_EQ(queued, (std::vector<int>{0, 1, 2}));
  ASSERT_TRUE(device.Synchronize().ok());
  EXPECT_EQ(progress.LayersWritten(), 1);
  progress.End(true);
  EXPECT_EQ(progress.LayersWritten(), 3);
}

}  // namespace
}  // namespace skein::engine
