// What CpuOps computes is tested in engine/ops/conformance.
#include "engine/ops/cpu/cpu_ops.h"

#include "gtest/gtest.h"

namespace skein::engine {
namespace {

TEST(MakeCpuOps, RefusesNoThreads) {
  EXPECT_EQ(MakeCpuOps({0, CpuIsa::kAuto}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace skein::engine
