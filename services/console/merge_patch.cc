#include "services/console/merge_patch.h"

#include <cmath>
#include <string>

#include "absl/strings/match.h"

namespace skein::services {
namespace {

constexpr double kSameMomentMs = 1000;

bool IsMoment(const std::string& name, const nlohmann::json& value) {
  return value.is_number() && absl::EndsWith(name, "_at_ms");
}

}  // namespace

nlohmann::json MergePatchOf(const nlohmann::json& before, const nlohmann::json& after) {
  nlohmann::json patch = nlohmann::json::object();
  for (const auto& [name, value] : after.items()) {
    const auto old = before.find(name);
    if (old != before.end() && old->is_object() && value.is_object()) {
      nlohmann::json inner = MergePatchOf(*old, value);
      if (!inner.empty()) patch[name] = std::move(inner);
    } else if (old == before.end() || *old != value) {
      patch[name] = value;
    }
  }
  for (const auto& [name, value] : before.items()) {
    if (!after.contains(name)) patch[name] = nullptr;
  }
  return patch;
}

void KeepMoments(const nlohmann::json& before, nlohmann::json* after) {
  if (before.is_array() && after->is_array() && before.size() == after->size()) {
    for (size_t i = 0; i < before.size(); ++i) KeepMoments(before[i], &(*after)[i]);
  }
  if (!before.is_object() || !after->is_object()) return;
  for (auto& [name, value] : after->items()) {
    const auto old = before.find(name);
    if (old == before.end()) continue;
    if (!IsMoment(name, value) || !IsMoment(name, *old)) {
      KeepMoments(*old, &value);
    } else if (std::abs(value.get<double>() - old->get<double>()) < kSameMomentMs) {
      value = *old;
    }
  }
}

}  // namespace skein::services
