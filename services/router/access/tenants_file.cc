#include "services/router/access/tenants_file.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/router/access/api_keys.h"
#include "yaml-cpp/yaml.h"

namespace skein::services {
namespace {

constexpr int64_t kWeightMax = 1000;
constexpr int64_t kConcurrencyMax = 1'000'000;
constexpr int64_t kGoalMsMax = 86'400'000;  // a day

absl::Status Wrong(const YAML::Mark& mark, const std::string& what) {
  return absl::InvalidArgumentError(
      mark.is_null() ? what : absl::StrCat("line ", mark.line + 1, ": ", what));
}

// What a node has, for people.
std::string Given(const YAML::Node& node) {
  constexpr size_t kShown = 40;
  if (node.IsNull()) return "nothing";
  if (!node.IsScalar()) return node.IsSequence() ? "a list" : "a mapping";
  return absl::StrCat("'", absl::CHexEscape(node.Scalar().substr(0, kShown)), "'");
}

absl::Status ReadNumber(const YAML::Node& node, const std::string& name, int64_t least,
                        int64_t most, int64_t* number) {
  const bool is_number = node.IsScalar() && absl::SimpleAtoi(node.Scalar(), number);
  if (is_number && *number >= least && *number <= most) return absl::OkStatus();
  return Wrong(node.Mark(), absl::StrCat(name, " takes an integer between ", least, " and ", most,
                                         ", not ", Given(node)));
}

// 0 would be taken for "none may pass" by some, and for "no limit" by others.
absl::Status ReadLimit(const YAML::Node& node, const std::string& name, int64_t most,
                       int64_t* limit) {
  absl::Status status = ReadNumber(node, name, 1, most, limit);
  if (status.ok() || Given(node) != "'0'") return status;
  return absl::InvalidArgumentError(absl::StrCat(
      status.message(),
      "; leave it out for no limit, and remove the tenant's keys to refuse its requests"));
}

absl::Status ReadGoal(const YAML::Node& node, const std::string& name, int64_t* goal_us) {
  int64_t ms = 0;
  absl::Status status = ReadNumber(node, name, 1, kGoalMsMax, &ms);
  *goal_us = ms * 1000;
  return status;
}

absl::Status ReadPriority(const YAML::Node& node, const std::string& name, Tenant* tenant) {
  int64_t priority = 0;
  absl::Status status = ReadNumber(node, name, -INT32_MAX, INT32_MAX, &priority);
  tenant->priority = static_cast<int32_t>(priority);
  return status;
}

absl::Status ReadModels(const YAML::Node& node, const std::string& name, Tenant* tenant) {
  absl::Status wrong = Wrong(node.Mark(), absl::StrCat(name, " takes a list of models' names"));
  if (!node.IsSequence() || node.size() == 0) return wrong;
  for (const YAML::Node& model : node) {
    if (!model.IsScalar() || model.Scalar().empty()) return wrong;
    tenant->models.insert(model.Scalar());
  }
  return absl::OkStatus();
}

absl::Status ReadField(const std::string& field, const YAML::Node& key, const YAML::Node& value,
                       const std::string& name, Tenant* tenant) {
  using scheduler::tenants::TokenBucket;
  if (field == "requests_per_minute") {
    return ReadLimit(value, name, TokenBucket::kPerMinuteMax, &tenant->limits.requests_per_minute);
  }
  if (field == "tokens_per_minute") {
    return ReadLimit(value, name, TokenBucket::kPerMinuteMax, &tenant->limits.tokens_per_minute);
  }
  if (field == "concurrency") {
    return ReadLimit(value, name, kConcurrencyMax, &tenant->limits.concurrency);
  }
  if (field == "weight") return ReadNumber(value, name, 1, kWeightMax, &tenant->weight);
  if (field == "priority") return ReadPriority(value, name, tenant);
  if (field == "ttft_ms") return ReadGoal(value, name, &tenant->ttft_goal_us);
  if (field == "tpot_ms") return ReadGoal(value, name, &tenant->tpot_goal_us);
  if (field == "models") return ReadModels(value, name, tenant);
  return Wrong(key.Mark(),
               absl::StrCat("a tenant has no '", field,
                            "'; it has requests_per_minute, tokens_per_minute, concurrency, "
                            "weight, priority, ttft_ms, tpot_ms and models"));
}

absl::Status ReadTenant(const YAML::Node& node, const std::string& name, Tenant* tenant) {
  if (node.IsNull()) return absl::OkStatus();
  if (!node.IsMap()) {
    return Wrong(node.Mark(),
                 absl::StrCat("tenant '", name, "' takes a mapping, not ", Given(node)));
  }
  std::set<std::string> seen;
  for (const auto& field : node) {
    const std::string key = field.first.IsScalar() ? field.first.Scalar() : "";
    if (!seen.insert(key).second) {
      return Wrong(field.first.Mark(), absl::StrCat("'", key, "' is there twice"));
    }
    absl::Status status =
        ReadField(key, field.first, field.second, absl::StrCat(name, ".", key), tenant);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<Tenants> ReadTenants(const YAML::Node& root) {
  if (!root.IsMap() || root.size() != 1 || !root["tenants"]) {
    return absl::InvalidArgumentError(
        "the file must have the key 'tenants' at its top level, and no other one");
  }
  if (!root["tenants"].IsMap()) {
    return Wrong(root["tenants"].Mark(),
                 absl::StrCat("'tenants' takes a mapping from each tenant's name to its limits, "
                              "not ",
                              Given(root["tenants"])));
  }
  Tenants tenants;
  for (const auto& entry : root["tenants"]) {
    const std::string name = entry.first.IsScalar() ? entry.first.Scalar() : "";
    if (!IsAccountName(name)) {
      return Wrong(entry.first.Mark(),
                   "a tenant's name is 1 to 64 letters, digits, '.', '_' and '-', and begins with "
                   "a letter or a digit");
    }
    const auto [it, is_new] = tenants.try_emplace(name);
    if (!is_new) {
      return Wrong(entry.first.Mark(), absl::StrCat("tenant '", name, "' is there twice"));
    }
    if (absl::Status s = ReadTenant(entry.second, name, &it->second); !s.ok()) return s;
  }
  return tenants;
}

}  // namespace

absl::StatusOr<Tenants> ParseTenants(const std::string& text) {
  try {
    return ReadTenants(YAML::Load(text));
  } catch (const YAML::Exception& error) {
    return Wrong(error.mark, error.msg);
  }
}

scheduler::tenants::TenantLimits ShareOf(const scheduler::tenants::TenantLimits& limits,
                                         int64_t routers) {
  const auto share = [routers](int64_t limit) { return (limit + routers - 1) / routers; };
  return {share(limits.requests_per_minute), share(limits.tokens_per_minute),
          share(limits.concurrency)};
}

}  // namespace skein::services
