// The model, device and link of skeinctl simulate --offline.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "scheduler/simulator/offline/offline_profile.h"

namespace skein::services {

// A built-in model (OfflineModels), or a Hugging Face config.json. Weights and KV are in the file's
// dtype; bfloat16 without one. NOT_FOUND: neither; INVALID_ARGUMENT names the file's field.
absl::StatusOr<scheduler::OfflineModel> LoadOfflineModel(const std::string& name_or_path);

// A built-in device (OfflineDevices), or a step profile (its name or file), of which peaks and
// fitted numbers count; memory_bytes is then its usable_bytes. The costs between instances are
// always the built-in ones.
struct LoadedDevice {
  scheduler::OfflineDevice device;
  bool is_step_profile = false;
};
absl::StatusOr<LoadedDevice> LoadOfflineDevice(const std::string& name_or_path);

// A built-in link (OfflineLinks), or GB/s in one direction: "450". Bytes per second.
absl::StatusOr<double> ParseOfflineLink(const std::string& link);

}  // namespace skein::services
