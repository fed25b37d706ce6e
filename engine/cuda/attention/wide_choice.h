// Which kernel computes wide tiles on a device. Hopper's own is written after the PTX ISA and run
// on the emulator; that a GPU agrees is shown on the GPU itself, each time before it is used.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "engine/cuda/attention/attention_plan.h"
#include "engine/cuda/simt/stream.h"
#include "engine/device/device.h"

namespace skein::engine {

// Set to 0, this environment variable keeps Hopper's kernel from being used, and from being run
// for the check.
inline constexpr char kWgmmaVariable[] = "SKEIN_WGMMA";

struct WideCandidate {
  std::string device;       // "cuda:0", for messages
  int capability = 0;       // 90 for 9.0
  int multiprocessors = 0;  // as the kernel's launch finds them
  std::chrono::seconds check_max{30};
};

// kWgmma for compute capability 9.0 where CheckWgmmaAttention agrees; where it does not, `warn` is
// told once, and what differed. A check that takes longer than check_max ends the process with its
// cause: nothing can stop a kernel that hangs. `stream` is the one that `device` copies in the
// order of.
WideKernel ChooseWideKernel(Device* device, CudaStream stream, const WideCandidate& candidate,
                            const std::function<void(const std::string&)>& warn);

// Runs both kernels on the same queries and keys: bf16 and f16, head_dims 64 and 128, tiles whole
// and split, behind a history, as many that a block gets several. INTERNAL names the first result
// that differs by more than rounding, or that is another one the next time; also the device's own
// errors. Needs some 60 MB on a GPU of 132 multiprocessors.
absl::Status CheckWgmmaAttention(Device* device, CudaStream stream, int multiprocessors);

}  // namespace skein::engine
