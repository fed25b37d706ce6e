// What the file of tenants says.
#include "services/router/access/tenants_file.h"

#include <gtest/gtest.h>

#include "absl/status/status.h"

namespace skein::services {
namespace {

TEST(TenantsFileTest, EveryValueIsRead) {
  const auto tenants = ParseTenants(R"(
# who may ask how much
tenants:
  search:
    requests_per_minute: 600
    tokens_per_minute: 200000
    concurrency: 32
    weight: 4
    priority: -2
    ttft_ms: 2000
    tpot_ms: 50
    models: [small, "large"]
  default:
  batch: {}
)");
  ASSERT_TRUE(tenants.ok()) << tenants.status();
  ASSERT_EQ(tenants->size(), 3u);
  const Tenant& search = tenants->at("search");
  EXPECT_EQ(search.limits, (scheduler::tenants::TenantLimits{600, 200000, 32}));
  EXPECT_EQ(search.weight, 4);
  EXPECT_EQ(search.priority, -2);
  EXPECT_EQ(search.ttft_goal_us, 2'000'000);
  EXPECT_EQ(search.tpot_goal_us, 50'000);
  EXPECT_EQ(search.models, (std::set<std::string>{"large", "small"}));
  for (const char* name : {"default", "batch"}) {
    const Tenant& tenant = tenants->at(name);
    EXPECT_EQ(tenant.limits, scheduler::tenants::TenantLimits{});
    EXPECT_EQ(tenant.weight, 1);
    EXPECT_FALSE(tenant.priority.has_value());
    EXPECT_TRUE(tenant.models.empty());
  }
}

TEST(TenantsFileTest, WhatIsWrongIsNamedByItsLine) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"", "the file must have the key 'tenants' at its top level, and no other one"},
      {"tenants: {a: }\nmore: 1",
       "the file must have the key 'tenants' at its top level, and no other one"},
      {"tenants: [a]",
       "line 1: 'tenants' takes a mapping from each tenant's name to its limits, not a list"},
      {"tenants:\n  a: 3", "line 2: tenant 'a' takes a mapping, not '3'"},
      {"tenants:\n  a:\n    weight: 0",
       "line 3: a.weight takes an integer between 1 and 1000, not '0'"},
      {"tenants:\n  a:\n    weight: heavy",
       "line 3: a.weight takes an integer between 1 and 1000, not 'heavy'"},
      {"tenants:\n  a:\n    priority: [1]",
       "line 3: a.priority takes an integer between -2147483647 and 2147483647, not a list"},
      {"tenants:\n  a:\n    concurrency: -1",
       "line 3: a.concurrency takes an integer between 1 and 1000000, not '-1'"},
      {"tenants:\n  a:\n    requests_per_minute: 0",
       "line 3: a.requests_per_minute takes an integer between 1 and 10000000000, not '0'; leave "
       "it out for no limit, and remove the tenant's keys to refuse its requests"},
      {"tenants:\n  a:\n    models: m", "line 3: a.models takes a list of models' names"},
      {"tenants:\n  a:\n    ttft_ms: 0",
       "line 3: a.ttft_ms takes an integer between 1 and 86400000, not '0'"},
      {"tenants:\n  a:\n    rpm: 3",
       "line 3: a tenant has no 'rpm'; it has requests_per_minute, tokens_per_minute, "
       "concurrency, weight, priority, ttft_ms, tpot_ms and models"},
      {"tenants:\n  a b: {}",
       "line 2: a tenant's name is 1 to 64 letters, digits, '.', '_' and '-', and begins with a "
       "letter or a digit"},
      {"tenants:\n  a: {}\n  a: {}", "line 3: tenant 'a' is there twice"},
      {"tenants:\n  a: {weight: 1,\n   weight: 2}", "line 3: 'weight' is there twice"},
  };
  for (const auto& c : cases) {
    const auto tenants = ParseTenants(c.text);
    ASSERT_FALSE(tenants.ok()) << c.text;
    EXPECT_EQ(tenants.status().message(), c.message);
  }
  const absl::Status broken = ParseTenants("tenants:\n  a: [").status();
  EXPECT_EQ(broken.message().substr(0, 5), "line ") << broken;
}

TEST(TenantsFileTest, TheSharesOfAllRoutersAreTheLimitAtLeast) {
  EXPECT_EQ(ShareOf({600, 1000, 5}, 1), (scheduler::tenants::TenantLimits{600, 1000, 5}));
  EXPECT_EQ(ShareOf({600, 1000, 5}, 3), (scheduler::tenants::TenantLimits{200, 334, 2}));
  EXPECT_EQ(ShareOf({0, 1, 0}, 4), (scheduler::tenants::TenantLimits{0, 1, 0}));
}

}  // namespace
}  // namespace skein::services
