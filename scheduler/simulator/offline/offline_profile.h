// What the models of offline jobs (this folder) compute from: a step profile, whose base_devices
// are the devices of one instance, and what instances that share weights (SiDP) add to it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/simulator/formations/step_time.h"

namespace skein::scheduler {

// Fitted to SiDP's ratios (builtin_offline_profiles.cc says to which).
struct PeerCosts {
  double hop_s = 0;  // rows to another instance, or results back, without their bytes
  // CaS that does not skip dummy runs: what each layer waits for an instance without work.
  double dummy_wait_s = 0;
};

struct OfflineProfile {
  StepProfile step;
  PeerCosts peers;
};

struct OfflineModel {
  std::string name;  // as in --model
  StepProfile::Model shape;
};
struct OfflineDevice {
  std::string name;          // as in --device
  double memory_bytes = 0;   // of one device
  StepProfile::Peaks peaks;  // without usable_bytes
  StepProfile::Fitted fitted;
  PeerCosts peers;
};
struct OfflineLink {
  std::string name;        // as in --link
  double bytes_per_s = 0;  // one direction
};

const std::vector<OfflineModel>& OfflineModels();
const std::vector<OfflineDevice>& OfflineDevices();
const std::vector<OfflineLink>& OfflineLinks();
// Null: none has this name.
const OfflineModel* FindOfflineModel(std::string_view name);
const OfflineDevice* FindOfflineDevice(std::string_view name);
const OfflineLink* FindOfflineLink(std::string_view name);

// `memory_share`: of a device's memory, for weights and KV. Whether the weights fit is not asked
// here: SiDP's may where full ones do not.
OfflineProfile MakeOfflineProfile(const OfflineModel& model, const OfflineDevice& device,
                                  double memory_share, int64_t base_devices);

// INVALID_ARGUMENT names the field and its value. Other than CheckStepProfile it takes weights that
// do not fit an instance.
absl::Status CheckOfflineProfile(const OfflineProfile& profile);

}  // namespace skein::scheduler
