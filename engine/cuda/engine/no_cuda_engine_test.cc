#include <string>

#include "engine/cuda/device/cuda_copy_stream.h"
#include "engine/cuda/device/cuda_peer_opener.h"
#include "engine/cuda/engine/cuda_engine.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

TEST(NoCudaEngine, SaysThatTheBuildHasNoCuda) {
  ModelEngineOptions options;
  options.device_name = "cuda:0";
  const absl::Status status = MakeCudaEngine("/nonexistent", options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()),
            "device: 'cuda:0': this binary was built without CUDA; rebuild it with bazel build "
            "--config=cuda");
  EXPECT_EQ(MakeCudaCopyStream("cuda:0").status(), status);
  EXPECT_EQ(MakeCudaPeerOpener("cuda:0").status(), status);
  options.device_name = "cuda:one";
  EXPECT_EQ(std::string(MakeCudaEngine("/nonexistent", options).status().message()),
            "device: 'cuda:one' is not cuda:N with N from 0");
}

}  // namespace
}  // namespace skein::engine
