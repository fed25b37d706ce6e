#include "scheduler/plan/random_plan.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "scheduler/plan/latency/builtin_models.h"
#include "scheduler/plan/testing/plan_check.h"

namespace skein::scheduler {
namespace {

TEST(RandomPlan, IsAPlanOfInstancesThatAreThere) {
  const LatencyModel model = Llama3_8bA100();
  const Cluster cluster{16, 8};
  std::vector<double> queue_s(16, 0.5);
  queue_s[3] = queue_s[11] = kNoInstanceS;
  queue_s[5] = 2;
  std::set<size_t> chunks, sizes;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const auto tokens = static_cast<int64_t>(1 + seed * 7);
    const PrefillPlan plan = PlanRandom(model, queue_s, tokens, seed);
    const absl::Status status = CheckPlan(model, cluster, queue_s, tokens, plan);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_LT(plan.ttft_s, kNoInstanceS);
    EXPECT_EQ(plan, PlanRandom(model, queue_s, tokens, seed));
    chunks.insert(plan.chunks.size());
    sizes.insert(plan.chunks.back().instances.size());
  }
  EXPECT_EQ(chunks, (std::set<size_t>{1, 2, 3, 4}));
  EXPECT_EQ(sizes, (std::set<size_t>{1, 2, 4, 8}));
}

}  // namespace
}  // namespace skein::scheduler
