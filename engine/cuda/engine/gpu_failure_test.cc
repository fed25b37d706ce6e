// What goes wrong on a GPU, and how a worker's engine says it.
#include <csignal>
#include <string>

#include "engine/cuda/device/cuda_copy_stream.h"
#include "engine/cuda/device/cuda_device.h"
#include "engine/cuda/engine/cuda_engine.h"
#include "engine/cuda/testing/bad_write.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/random_checkpoint/random_checkpoint.h"

namespace skein::engine {
namespace {

constexpr char kCause[] = "CUDA: .*cudaErrorIllegalAddress.*: the process ends";

class GpuFailureDeathTest : public testing::Test {
 protected:
  // Each death in a process of its own from the start: a forked one has no CUDA.
  GpuFailureDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(GpuFailureDeathTest, ABadAddressInAKernelEndsTheProcessWithItsCause) {
  EXPECT_EXIT(
      {
        auto device = OpenCudaDevice("cuda:0").value();
        LaunchBadWrite(device->Stream());
        (void)device->Synchronize();
      },
      testing::KilledBySignal(SIGABRT), kCause);
}

// Whoever asks the GPU next ends the process, also the handoff's thread.
TEST_F(GpuFailureDeathTest, TheCopyStreamSeesItToo) {
  EXPECT_EXIT(
      {
        auto device = OpenCudaDevice("cuda:0").value();
        auto copies = MakeCudaCopyStream("cuda:0").value();
        void* memory = device->Alloc(64).value();
        void* host = copies->AllocHost(64).value();
        LaunchBadWrite(device->Stream());
        for (;;) {
          (void)copies->Copy(host, memory, 64);
          (void)AwaitCopies(copies.get());
        }
      },
      testing::KilledBySignal(SIGABRT), kCause);
}

TEST(GpuFailure, TooLittleMemoryForTheKvIsAnErrorAtStart) {
  const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                 {"hidden_size", 32},
                                 {"intermediate_size", 48},
                                 {"num_hidden_layers", 2},
                                 {"num_attention_heads", 4},
                                 {"vocab_size", 50},
                                 {"max_position_embeddings", 512}};
  const std::string dir = testing::TempDir() + "/gpu_failure";
  ASSERT_TRUE(tools::WriteRandomCheckpoint(dir, config, {.dtype = DType::kBF16}).ok());
  ModelEngineOptions options;
  options.device_name = "cuda:0";
  options.kv_bytes = int64_t{1} << 42;
  const absl::Status status = MakeCudaEngine(dir, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  const std::string text(status.message());
  EXPECT_NE(text.find("device cuda:0"), std::string::npos) << text;
  EXPECT_NE(text.find("bytes are free"), std::string::npos) << text;
}

}  // namespace
}  // namespace skein::engine
