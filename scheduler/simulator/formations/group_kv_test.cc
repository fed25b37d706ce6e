#include "scheduler/simulator/formations/group_kv.h"

#include <vector>

#include <gtest/gtest.h>
#include "scheduler/simulator/formations/builtin_step_profiles.h"
#include "scheduler/vocabulary/mix64.h"

namespace skein::scheduler {
namespace {

using orchestrator::Subset;

const StepProfile& Profile() { return *FindStepProfile("llama3-70b-h200-bf16"); }

TEST(GroupKv, ARequestIsSpreadOverTheMembersThatComputeIt) {
  const int64_t one = Profile().KvTokens(1, 1);
  const std::vector<GroupRequest> requests = {{.prompt_tokens = one - 100, .output_tokens = 50},
                                              {.prompt_tokens = 2 * one - 200, .output_tokens = 90},
                                              {.prompt_tokens = 90, .output_tokens = 20}};
  GroupKv kv(Profile(), 2, 2, &requests);
  EXPECT_TRUE(kv.Fits(0, 1));
  EXPECT_FALSE(kv.Fits(1, 1));
  EXPECT_TRUE(kv.Fits(1, 2));
  EXPECT_TRUE(kv.Reserve({1, 1}, 0));
  EXPECT_FALSE(kv.Reserve({0, 2}, 1));  // member 1 is full, and member 0 gives nothing
  EXPECT_FALSE(kv.Holds(1));
  EXPECT_FALSE(kv.Reserve({1, 1}, 2));
  EXPECT_TRUE(kv.Reserve({0, 1}, 2));
  kv.Free(0);
  kv.Free(0);
  kv.Free(2);
  EXPECT_TRUE(kv.Reserve({0, 2}, 1));
  EXPECT_NEAR(kv.held_share(), 1, 1e-3);
}

// Random reservations: nobody holds more than it has, and in the end nothing is held.
TEST(GroupKv, NothingIsLostOrHeldTwice) {
  uint64_t random = 11;
  const auto below = [&](uint64_t bound) {
    return static_cast<int64_t>(Mix64(random += kMix64Step) % bound);
  };
  std::vector<GroupRequest> requests(200);
  for (GroupRequest& request : requests) {
    request = {.prompt_tokens = 1 + below(200'000), .output_tokens = 1 + below(1000)};
  }
  GroupKv kv(Profile(), 4, 4, &requests);
  const Subset subsets[] = {{0, 1}, {1, 1}, {2, 1}, {3, 1}, {0, 2}, {2, 2}, {0, 4}};
  for (int i = 0; i < 20'000; ++i) {
    const auto request = static_cast<size_t>(below(200));
    if (kv.Holds(request)) {
      kv.Free(request);
    } else {
      const Subset& subset = subsets[below(7)];
      const bool taken = kv.Reserve(subset, request);
      EXPECT_EQ(taken, kv.Holds(request));
      EXPECT_TRUE(!taken || kv.Fits(request, subset.size));
    }
    ASSERT_LE(kv.held_share(), 1 + 1e-9);
  }
  for (size_t request = 0; request < requests.size(); ++request) kv.Free(request);
  EXPECT_NEAR(kv.held_share(), 0, 1e-9);
}

}  // namespace
}  // namespace skein::scheduler
