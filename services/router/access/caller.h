// Who has sent a request, as its API key says.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

namespace skein::services {

// Made when the files of keys and tenants are read, then immutable and shared.
struct Caller {
  std::string tenant;               // empty: the key names none
  std::string key_id;               // empty: a tenant's offline job, which has no key
  std::optional<int32_t> priority;  // the default and the most urgent; lower is more urgent
  int64_t weight = 1;               // of the tenant, beside others
  // The most urgent that its requests may want; 0: they say what they want.
  int64_t ttft_goal_us = 0;
  int64_t tpot_goal_us = 0;
  std::set<std::string> models;  // that it may use; empty: all

  bool MayUse(const std::string& model) const { return models.empty() || models.contains(model); }
};

}  // namespace skein::services
