#include "bench/offline/sidp_points.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace skein::bench {
namespace {

scheduler::StepProfile BuiltIn(const char* name) {
  const scheduler::OfflineDevice& device = *scheduler::FindOfflineDevice(name);
  scheduler::StepProfile profile;
  profile.name = name;
  profile.peaks = device.peaks;
  profile.fitted = device.fitted;
  return profile;
}

TEST(SidpPoints, TheBuiltInDevicesMeetThePapersRatios) {
  const std::pair<const char*, const std::vector<PaperPoint>*> devices[] = {
      {"h20", &H20Points()}, {"h200", &H200Points()}, {"b200", &B200Points()}};
  for (const auto& [name, points] : devices) {
    const scheduler::StepProfile profile = BuiltIn(name);
    for (const PaperPoint& point : *points) {
      EXPECT_NEAR(point.ours(profile) / point.paper, 1, 0.1) << name << ": " << point.what;
    }
  }
}

TEST(SidpPoints, TheBuiltInDevicesAreTheFitted) {
  for (const scheduler::StepProfile& fitted : FitDevices()) {
    const scheduler::StepProfile built_in = BuiltIn(fitted.name.c_str());
    EXPECT_NEAR(built_in.fitted.compute_share / fitted.fitted.compute_share, 1, 0.01);
    EXPECT_NEAR(built_in.fitted.step_s / fitted.fitted.step_s, 1, 0.01);
    EXPECT_NEAR(built_in.fitted.sequence_s / fitted.fitted.sequence_s, 1, 0.01);
  }
}

}  // namespace
}  // namespace skein::bench
