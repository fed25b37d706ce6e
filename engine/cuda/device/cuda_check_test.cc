// What CUDA's errors become. Runs anywhere: no call reaches a GPU.
#include "engine/cuda/device/cuda_check.h"

#include <string>

#include "gtest/gtest.h"

namespace skein::engine {
namespace {

TEST(FromCuda, SaysWhatFailedAndHow) {
  EXPECT_TRUE(FromCuda(cudaSuccess, "cudaMalloc").ok());
  const absl::Status memory = FromCuda(cudaErrorMemoryAllocation, "cudaMalloc");
  EXPECT_EQ(memory.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(std::string(memory.message()), "cudaMalloc: out of memory (cudaErrorMemoryAllocation)");
  const absl::Status value = FromCuda(cudaErrorInvalidValue, "cudaMemcpyAsync");
  EXPECT_EQ(value.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(std::string(value.message()),
            "cudaMemcpyAsync: invalid argument (cudaErrorInvalidValue)");
}

// Nothing in the process can be trusted: it ends at once, by abort, and says why.
TEST(FromCudaDeathTest, AStickyErrorEndsTheProcessWithItsCause) {
  const auto ends = [](cudaError_t error, const char* cause) {
    EXPECT_EXIT(
        (void)FromCuda(error, "cudaStreamSynchronize"), testing::KilledBySignal(SIGABRT),
        std::string("CUDA: cudaStreamSynchronize: .*\\(") + cause + "\\): the process ends");
  };
  ends(cudaErrorIllegalAddress, "cudaErrorIllegalAddress");
  ends(cudaErrorLaunchFailure, "cudaErrorLaunchFailure");
  ends(cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout");
  ends(cudaErrorAssert, "cudaErrorAssert");
  ends(cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable");
  ends(cudaErrorNvlinkUncorrectable, "cudaErrorNvlinkUncorrectable");
}

TEST(FromCudaDeathTest, AHintIsSaidWhileItLives) {
  { const CudaHint over("of another time"); }
  EXPECT_EXIT(
      {
        const CudaHint hint("SKEIN_WGMMA=0 goes without");
        (void)FromCuda(cudaErrorIllegalInstruction, "cudaStreamSynchronize");
      },
      testing::KilledBySignal(SIGABRT), "the process ends\nCUDA: SKEIN_WGMMA=0 goes without");
}

TEST(FromCudaDeathTest, WhatMustNotFailEndsTheProcess) {
  EXPECT_EXIT(RequireCuda(cudaErrorInvalidValue, "cudaFree"), testing::KilledBySignal(SIGABRT),
              "CUDA: cudaFree: invalid argument");
}

}  // namespace
}  // namespace skein::engine
