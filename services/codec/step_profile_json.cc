#include "services/codec/step_profile_json.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "scheduler/simulator/formations/builtin_step_profiles.h"
#include "services/base/file.h"

namespace skein::services {
namespace {

using Json = nlohmann::ordered_json;
using scheduler::StepProfile;
using Fitted = StepProfile::Fitted;
using Peaks = StepProfile::Peaks;
using Shape = StepProfile::Model;

constexpr std::pair<const char*, std::string StepProfile::*> kTexts[] = {
    {"name", &StepProfile::name},
    {"model", &StepProfile::model},
    {"device", &StepProfile::device},
};
constexpr std::pair<const char*, int64_t Shape::*> kCounts[] = {
    {"layers", &Shape::layers},         {"hidden", &Shape::hidden},
    {"heads", &Shape::heads},           {"kv_heads", &Shape::kv_heads},
    {"head_dim", &Shape::head_dim},     {"intermediate", &Shape::intermediate},
    {"vocabulary", &Shape::vocabulary},
};
constexpr std::pair<const char*, double Shape::*> kWidths[] = {
    {"bytes_per_weight", &Shape::bytes_per_weight},
    {"bytes_per_kv_value", &Shape::bytes_per_kv_value},
};
constexpr std::pair<const char*, double Peaks::*> kPeaks[] = {
    {"flops_per_s", &Peaks::flops_per_s},
    {"attention_flops_per_s", &Peaks::attention_flops_per_s},
    {"hbm_bytes_per_s", &Peaks::hbm_bytes_per_s},
    {"link_bytes_per_s", &Peaks::link_bytes_per_s},
    {"usable_bytes", &Peaks::usable_bytes},
};
constexpr std::pair<const char*, double Fitted::*> kFitted[] = {
    {"compute_share", &Fitted::compute_share}, {"attention_share", &Fitted::attention_share},
    {"hbm_share", &Fitted::hbm_share},         {"link_share", &Fitted::link_share},
    {"collective_s", &Fitted::collective_s},   {"step_s", &Fitted::step_s},
    {"sequence_s", &Fitted::sequence_s},
};

// Takes fields out of one object; what is left in the end is unknown.
class Reader {
 public:
  Reader(Json object, std::string where) : object_(std::move(object)), where_(std::move(where)) {
    if (!object_.is_object()) Fail("is not an object");
  }

  template <typename Target, typename Fields>
  void Numbers(const Fields& fields, Target* target) {
    for (const auto& [name, member] : fields) Number(name, &(target->*member));
  }
  void Number(const char* name, double* value) {
    const Json found = Take(name);
    if (found.is_number()) *value = found.get<double>();
    if (!found.is_number()) Fail("has no number", name);
  }
  void Number(const char* name, int64_t* value) {
    const Json found = Take(name);
    if (found.is_number_integer()) *value = found.get<int64_t>();
    if (!found.is_number_integer()) Fail("has no whole number", name);
  }
  void Text(const char* name, std::string* value) {
    const Json found = Take(name);
    if (found.is_string()) *value = found.get<std::string>();
    if (!found.is_string() && !found.is_null()) Fail("has no text", name);
  }
  Json Take(const char* name) {
    if (!status_.ok() || !object_.contains(name)) return nullptr;
    Json value = object_[name];
    object_.erase(name);
    return value;
  }
  absl::Status Done() {
    if (status_.ok() && !object_.empty()) Fail("has an unknown field", object_.begin().key());
    return status_;
  }

 private:
  void Fail(const char* what, const std::string& name = "") {
    if (!status_.ok()) return;
    status_ =
        absl::InvalidArgumentError(absl::StrCat(where_, " ", what, name.empty() ? "" : ": ", name));
  }

  Json object_;
  std::string where_;
  absl::Status status_;
};

template <typename Target, typename Fields>
void Write(const Fields& fields, const Target& from, Json* to) {
  for (const auto& [name, member] : fields) (*to)[name] = from.*member;
}

}  // namespace

absl::StatusOr<StepProfile> ParseStepProfile(std::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError("not valid JSON");
  StepProfile profile;
  Reader top(json, "the profile");
  for (const auto& [name, member] : kTexts) top.Text(name, &(profile.*member));
  top.Number("base_devices", &profile.base_devices);
  Reader shape(top.Take("shape"), "shape");
  shape.Numbers(kCounts, &profile.shape);
  shape.Numbers(kWidths, &profile.shape);
  Reader peaks(top.Take("peaks"), "peaks");
  peaks.Numbers(kPeaks, &profile.peaks);
  Reader fitted(top.Take("fitted"), "fitted");
  fitted.Numbers(kFitted, &profile.fitted);
  absl::Status status = top.Done();
  status.Update(shape.Done());
  status.Update(peaks.Done());
  status.Update(fitted.Done());
  if (status.ok()) status = CheckStepProfile(profile);
  if (!status.ok()) return status;
  return profile;
}

std::string StepProfileJson(const StepProfile& profile) {
  Json json;
  for (const auto& [name, member] : kTexts) json[name] = profile.*member;
  json["base_devices"] = profile.base_devices;
  Write(kCounts, profile.shape, &json["shape"]);
  Write(kWidths, profile.shape, &json["shape"]);
  Write(kPeaks, profile.peaks, &json["peaks"]);
  Write(kFitted, profile.fitted, &json["fitted"]);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<StepProfile> LoadStepProfile(const std::string& name_or_path) {
  if (const StepProfile* profile = scheduler::FindStepProfile(name_or_path)) return *profile;
  const auto text = ReadFile(name_or_path);
  if (!text.ok()) {
    std::string names;
    for (const StepProfile& profile : scheduler::BuiltinStepProfiles()) {
      absl::StrAppend(&names, names.empty() ? "" : ", ", profile.name);
    }
    return absl::NotFoundError(absl::StrCat(
        "'", name_or_path, "' is neither a built-in step profile (", names, ") nor a file"));
  }
  auto profile = ParseStepProfile(*text);
  if (profile.ok()) return profile;
  const std::string why(profile.status().message());
  return absl::Status(profile.status().code(), absl::StrCat("'", name_or_path, "': ", why));
}

}  // namespace skein::services
