#include "scheduler/fairness/tenant_queues.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace skein::scheduler
