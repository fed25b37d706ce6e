// What links and lanes over NCCL ask of it alike. Internal to this folder.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "engine/comm/device/nccl/nccl_api.h"

namespace skein::engine {

struct NcclMessage {
  bool outgoing = false;
  int peer = 0;
  std::byte* data = nullptr;  // of the device
  size_t bytes = 0;           // 0: nothing is moved
};

// OK, also of ncclInProgress, or UNAVAILABLE with the call's name.
absl::Status FromNccl(const NcclApi& nccl, ncclResult_t result, const char* what);

// Starts these as one launch on `stream`. REQUIRES: the communicator's device is the calling
// thread's current CUDA device.
absl::Status StartTogether(const NcclApi& nccl, ncclComm_t comm, cudaStream_t stream,
                           std::span<const NcclMessage> messages);

}  // namespace skein::engine
