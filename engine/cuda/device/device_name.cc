#include <charconv>
#include <string>

#include "engine/cuda/device/cuda_device.h"

namespace skein::engine {

absl::StatusOr<int> ParseCudaDevice(std::string_view name) {
  constexpr std::string_view kPrefix = "cuda:";
  int id = -1;
  const char* end = name.data() + name.size();
  const bool begins = name.starts_with(kPrefix);
  const char* digits = name.data() + (begins ? kPrefix.size() : 0);
  const auto parsed = std::from_chars(digits, end, id);
  if (!begins || parsed.ec != std::errc() || parsed.ptr != end || id < 0) {
    return absl::InvalidArgumentError("device: '" + std::string(name) +
                                      "' is not cuda:N with N from 0");
  }
  return id;
}

absl::Status CheckCapability(const CudaDeviceInfo& info, std::string_view code_error) {
  constexpr int kOldest = 80;
  const std::string gpu = "device: 'cuda:" + std::to_string(info.id) + "' (" + info.name +
                          ") has compute capability " + std::to_string(info.capability / 10) + "." +
                          std::to_string(info.capability % 10) + ": ";
  if (info.capability < kOldest) return absl::InvalidArgumentError(gpu + "8.0 or newer is needed");
  if (code_error.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(gpu + "this build has no code for it (" +
                                    std::string(code_error) + ")");
}

}  // namespace skein::engine
