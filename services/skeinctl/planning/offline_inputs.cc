#include "services/skeinctl/planning/offline_inputs.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/checkpoint/model_config.h"
#include "nlohmann/json.hpp"
#include "services/base/file.h"
#include "services/codec/step_profile_json.h"

namespace skein::services {
namespace {

using scheduler::OfflineDevice;
using scheduler::OfflineModel;

template <typename Item>
std::string Names(const std::vector<Item>& items) {
  std::string names;
  for (const Item& item : items) absl::StrAppend(&names, names.empty() ? "" : ", ", item.name);
  return names;
}

// Of one weight. ParseModelConfig has refused other dtypes than these.
double BytesOfDtype(const std::string& config) {
  const auto json = nlohmann::json::parse(config, nullptr, /*allow_exceptions=*/false);
  for (const char* field : {"torch_dtype", "dtype"}) {
    if (json.is_object() && json.contains(field) && json[field] == "float32") return 4;
  }
  return 2;
}

absl::StatusOr<OfflineModel> ModelOfConfig(const std::string& path, const std::string& text) {
  const auto config = engine::ParseModelConfig(text);
  if (!config.ok()) return config.status();
  const double bytes = BytesOfDtype(text);
  return OfflineModel{.name = path,
                      .shape = {.layers = config->num_layers,
                                .hidden = config->hidden_size,
                                .heads = config->num_heads,
                                .kv_heads = config->num_kv_heads,
                                .head_dim = config->head_dim,
                                .intermediate = config->intermediate_size,
                                .vocabulary = config->vocab_size,
                                .bytes_per_weight = bytes,
                                .bytes_per_kv_value = bytes}};
}

}  // namespace

absl::StatusOr<OfflineModel> LoadOfflineModel(const std::string& name_or_path) {
  if (const OfflineModel* model = scheduler::FindOfflineModel(name_or_path)) return *model;
  const auto text = ReadFile(name_or_path);
  if (!text.ok()) {
    return absl::NotFoundError(absl::StrCat("--model: '", name_or_path,
                                            "' is neither a built-in model (",
                                            Names(scheduler::OfflineModels()), ") nor a file"));
  }
  auto model = ModelOfConfig(name_or_path, *text);
  if (model.ok()) return model;
  return absl::InvalidArgumentError(
      absl::StrCat("--model: '", name_or_path, "': ", model.status().message()));
}

absl::StatusOr<LoadedDevice> LoadOfflineDevice(const std::string& name_or_path) {
  if (const OfflineDevice* device = scheduler::FindOfflineDevice(name_or_path)) {
    return LoadedDevice{*device, false};
  }
  const auto profile = LoadStepProfile(name_or_path);
  if (profile.ok()) {
    return LoadedDevice{{.name = name_or_path,
                         .memory_bytes = profile->peaks.usable_bytes,
                         .peaks = profile->peaks,
                         .fitted = profile->fitted,
                         .peers = scheduler::OfflineDevices().front().peers},
                        true};
  }
  if (absl::IsNotFound(profile.status())) {
    return absl::NotFoundError(
        absl::StrCat("--device: '", name_or_path, "' is neither a built-in device (",
                     Names(scheduler::OfflineDevices()), ") nor a step profile or its file"));
  }
  return absl::InvalidArgumentError(absl::StrCat("--device: ", profile.status().message()));
}

absl::StatusOr<double> ParseOfflineLink(const std::string& link) {
  if (const scheduler::OfflineLink* known = scheduler::FindOfflineLink(link)) {
    return known->bytes_per_s;
  }
  double gigabytes = 0;
  if (absl::SimpleAtod(link, &gigabytes) && gigabytes > 0 && gigabytes <= 1e6) {
    return gigabytes * 1e9;
  }
  return absl::InvalidArgumentError(absl::StrCat("--link: '", link, "' is neither one of ",
                                                 Names(scheduler::OfflineLinks()),
                                                 " nor GB/s above 0 and up to 1e6"));
}

}  // namespace skein::services
