#include "engine/cuda/device/cuda_check.h"

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace skein::engine {
namespace {

// Errors after which every later call fails the same way.
bool IsSticky(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorDevicesUnavailable:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

thread_local const char* hint_of_thread = nullptr;

[[noreturn]] void End(cudaError_t error, const char* what) {
  std::fprintf(stderr, "CUDA: %s: %s (%s): the process ends\n", what, cudaGetErrorString(error),
               cudaGetErrorName(error));
  if (hint_of_thread != nullptr) std::fprintf(stderr, "CUDA: %s\n", hint_of_thread);
  std::abort();
}

}  // namespace

CudaHint::CudaHint(const char* hint) { hint_of_thread = hint; }
CudaHint::~CudaHint() { hint_of_thread = nullptr; }

absl::Status FromCuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  if (IsSticky(error)) End(error, what);
  cudaGetLastError();  // forgets it: it is told here
  const std::string text =
      absl::StrCat(what, ": ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")");
  return error == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(text)
                                            : absl::InternalError(text);
}

void RequireCuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) End(error, what);
}

}  // namespace skein::engine
