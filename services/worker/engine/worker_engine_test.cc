#include "services/worker/engine/worker_engine.h"

#include <gtest/gtest.h>

#include <string>

namespace skein::services {
namespace {

std::string RefusalOf(const std::string& device, const std::string& comm_path) {
  WorkerOptions options;
  options.device = device;
  options.comm_path = comm_path;
  const absl::Status status = MakeWorkerEngine(options, scheduler::Role::kPrefill).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

// Before a model is looked at: none is given here.
TEST(MakeWorkerEngine, ABadCommPathIsNamed) {
  EXPECT_EQ(RefusalOf("cpu", "fast"), "--comm-path: 'fast' is not auto, ipc, nccl or host");
  EXPECT_EQ(RefusalOf("cpu", "nccl"), "--comm-path: 'nccl' needs a GPU, but --device is cpu");
  EXPECT_EQ(RefusalOf("emulated", "ipc"),
            "--comm-path: 'ipc' needs a GPU, but --device is emulated");
  EXPECT_EQ(RefusalOf("cpu", "host"), "--model is required");
}

}  // namespace
}  // namespace skein::services
