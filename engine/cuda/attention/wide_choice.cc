#include "engine/cuda/attention/wide_choice.h"

#include <cstdlib>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "engine/cuda/device/deadline.h"

namespace skein::engine {
namespace {

constexpr int kHopper = 90;

bool IsTurnedOff() {
  const char* const value = std::getenv(kWgmmaVariable);
  return value != nullptr && std::string_view(value) == "0";
}

}  // namespace

WideKernel ChooseWideKernel(Device* device, CudaStream stream, const WideCandidate& candidate,
                            const std::function<void(const std::string&)>& warn) {
  if (candidate.capability != kHopper || IsTurnedOff()) return WideKernel::kMmaSync;
  const Deadline deadline(
      candidate.check_max,
      absl::StrCat("CUDA: the check of Hopper's attention kernel on ", candidate.device,
                   " has not ended in ", candidate.check_max.count(), " s: the kernel hangs (",
                   kWgmmaVariable, "=0 disables it): the process ends"));
  const absl::Status status = CheckWgmmaAttention(device, stream, candidate.multiprocessors);
  if (status.ok()) return WideKernel::kWgmma;
  warn(absl::StrCat("attention on ", candidate.device,
                    " does not use Hopper's kernel, which failed its check: ", status.message()));
  return WideKernel::kMmaSync;
}

}  // namespace skein::engine
