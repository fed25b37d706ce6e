#include "scheduler/simulator/formations/phased_load.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

TEST(PhasedLoad, SameSeedSameRequests) {
  const PhasedLoad load = {.requests = 300};
  const auto first = GeneratePhasedLoad(load);
  const auto again = GeneratePhasedLoad(load);
  ASSERT_EQ(first.size(), 300u);
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].arrival_us, again[i].arrival_us);
    EXPECT_EQ(first[i].prompt_tokens, again[i].prompt_tokens);
  }
  EXPECT_NE(GeneratePhasedLoad({.requests = 300, .seed = 2}).back().arrival_us,
            first.back().arrival_us);
}

TEST(PhasedLoad, RatesAndLengthsAreInTheirRanges) {
  const PhasedLoad load = {.quiet_s = 100,
                           .burst_s = 50,
                           .requests = 5000,
                           .prompt_min = 10,
                           .prompt_max = 20,
                           .output_min = 3,
                           .output_max = 4};
  const auto requests = GeneratePhasedLoad(load);
  EXPECT_TRUE(std::is_sorted(requests.begin(), requests.end(), [](const auto& a, const auto& b) {
    return a.arrival_us < b.arrival_us;
  }));
  int64_t quiet = 0, burst = 0;
  for (const GroupRequest& request : requests) {
    EXPECT_GE(request.prompt_tokens, 10);
    EXPECT_LE(request.prompt_tokens, 20);
    EXPECT_GE(request.output_tokens, 3);
    EXPECT_LE(request.output_tokens, 4);
    EXPECT_EQ(request.priority, 0);
    const TimeUs in_cycle = request.arrival_us % (150 * kSecondUs);
    EXPECT_EQ(request.phase == LoadPhase::kBurst, in_cycle >= 100 * kSecondUs);
    if (request.arrival_us >= 150 * kSecondUs && in_cycle < 50 * kSecondUs) {
      EXPECT_EQ(request.phase, LoadPhase::kAfter);
    }
    if (request.arrival_us >= 150 * kSecondUs) continue;
    (request.phase == LoadPhase::kBurst ? burst : quiet) += 1;
  }
  EXPECT_GT(quiet, 150);  // 2 to 5 a second
  EXPECT_LT(quiet, 600);
  EXPECT_GT(burst, 400);  // 10 to 30
  EXPECT_LT(burst, 1700);
}

TEST(PhasedLoad, SomeRequestsAreUrgentOrLong) {
  const auto requests = GeneratePhasedLoad(
      {.requests = 2000, .priority_share = 0.2, .long_share = 0.1, .long_prompt = 300'000});
  const auto urgent = std::count_if(requests.begin(), requests.end(),
                                    [](const auto& r) { return r.priority == 1; });
  const auto longs = std::count_if(requests.begin(), requests.end(),
                                   [](const auto& r) { return r.prompt_tokens == 300'000; });
  EXPECT_NEAR(static_cast<double>(urgent), 400, 80);
  EXPECT_NEAR(static_cast<double>(longs), 200, 60);
}

TEST(PhasedLoad, RefusalsNameTheField) {
  const auto why = [](const PhasedLoad& load) {
    return std::string(CheckPhasedLoad(load).message());
  };
  EXPECT_TRUE(CheckPhasedLoad({}).ok());
  EXPECT_NE(why({.quiet_rate_min = 0}).find("quiet rate"), std::string::npos);
  EXPECT_NE(why({.prompt_min = 9, .prompt_max = 8}).find("prompt tokens"), std::string::npos);
  EXPECT_NE(why({.priority_share = 1.5}).find("priority share"), std::string::npos);
  EXPECT_NE(why({.quiet_s = 0, .burst_s = 0}).find("phases"), std::string::npos);
  EXPECT_NE(why({.requests = 0}).find("requests"), std::string::npos);
  EXPECT_NE(why({.long_share = 0.1}).find("long prompt"), std::string::npos);
}

}  // namespace
}  // namespace skein::scheduler
