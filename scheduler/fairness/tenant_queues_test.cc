#include "scheduler/fairness/tenant_queues.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

namespace skein::scheduler {
namespace {

TEST(TenantQueues, OfOneTenantAllThatIsThereIsComputedBefore) {
  TenantQueues queues;
  queues.Add("", 100);
  queues.Add("", 50);
  EXPECT_EQ(queues.TokensBefore("", 10), 150);
  queues.Remove("", 100);
  EXPECT_EQ(queues.TokensBefore("", 10), 50);
  queues.Remove("", 50);
  EXPECT_EQ(queues, TenantQueues());
}

TEST(TenantQueues, OfOtherTenantsAtMostAsMuchAsOfTheOwn) {
  TenantQueues queues;
  queues.Add("burst", 100000);
  queues.Add("small", 7);
  EXPECT_EQ(queues.TokensBefore("quiet", 10), 10 + 7);
  queues.Add("quiet", 20);
  EXPECT_EQ(queues.TokensBefore("quiet", 10), 20 + 30 + 7);
  EXPECT_EQ(queues.TokensBefore("burst", 10), 100000 + 7 + 20);
}

// Never less than tenant by tenant, and never more than twice that.
TEST(TenantQueues, IsCloseToTheEstimateTenantByTenant) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    TenantQueues queues;
    std::map<std::string, int64_t> tokens;
    for (int step = 0; step < 60; ++step) {
      const std::string tenant = "t" + std::to_string(random() % 20);
      const auto more = static_cast<int64_t>(1 + random() % 5000);
      if (random() % 3 > 0) {
        queues.Add(tenant, more);
        tokens[tenant] += more;
      } else if (tokens.count(tenant) > 0) {
        const int64_t less = std::min(more, tokens[tenant]);
        queues.Remove(tenant, less);
        tokens[tenant] -= less;
      }
    }
    const auto prompt = static_cast<int64_t>(1 + random() % 5000);
    const int64_t own = queues.Of("t0");
    EXPECT_EQ(own, tokens["t0"]);
    int64_t others = 0;
    for (const auto& [tenant, of] : tokens) {
      if (tenant != "t0") others += std::min(of, own + prompt);
    }
    const int64_t estimated = queues.TokensBefore("t0", prompt) - own;
    EXPECT_GE(estimated, others);
    EXPECT_LE(estimated, 2 * others);
  }
}

}  // namespace
}  // namespace skein::scheduler
