// The tenants and their limits, as an operator writes them (docs/tenants.md):
//
//   tenants:
//     search:
//       requests_per_minute: 600
//       tokens_per_minute: 200000
//       concurrency: 32
//       weight: 4
//       priority: 0
//       ttft_ms: 2000
//       tpot_ms: 50
//       models: [small]
//
// Every value may be left out: no limit, weight 1, no priority, no goal, all models. The tenant
// `default`, if there is one, is that of keys that name none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "scheduler/tenants/tenant_budgets.h"

namespace skein::services {

struct Tenant {
  scheduler::tenants::TenantLimits limits;  // of the whole cluster
  int64_t weight = 1;
  std::optional<int32_t> priority;
  int64_t ttft_goal_us = 0, tpot_goal_us = 0;  // 0: none
  std::set<std::string> models;                // empty: all
};
using Tenants = std::map<std::string, Tenant>;

inline constexpr char kDefaultTenant[] = "default";

// INVALID_ARGUMENT names the line and what is wrong there.
absl::StatusOr<Tenants> ParseTenants(const std::string& text);

// Each of `routers` routers enforces its share by itself, rounded up.
scheduler::tenants::TenantLimits ShareOf(const scheduler::tenants::TenantLimits& limits,
                                         int64_t routers);

}  // namespace skein::services
