#include "scheduler/placement/rate_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

namespace skein::scheduler {
namespace {

double EndOf(const PrefillCandidate& candidate, int64_t tokens) {
  return QueueSeconds(candidate) + static_cast<double>(tokens) / candidate.tokens_per_second;
}

// The walk over all that RateOrder spares: where the prompt would be done first; the smallest id of
// equals.
std::optional<InstanceId> PickByWalk(const std::vector<PrefillCandidate>& candidates,
                                     int64_t prompt_tokens) {
  std::optional<InstanceId> best;
  double best_seconds = 0;
  for (const PrefillCandidate& candidate : candidates) {
    const double seconds = EndOf(candidate, prompt_tokens);
    if (!best.has_value() || seconds < best_seconds ||
        (seconds == best_seconds && candidate.instance < *best)) {
      best = candidate.instance;
      best_seconds = seconds;
    }
  }
  return best;
}

TEST(RateOrder, PicksByWhatIsBeforeThePrompt) {
  RateOrder order;
  order.Set({.instance = {1}, .queued_tokens = 5000, .tokens_per_second = 1000});
  order.Set({.instance = {2}, .queued_tokens = 9000, .tokens_per_second = 1000});
  const auto all = [](InstanceId) { return true; };
  const auto before = [](InstanceId id) -> int64_t { return id == InstanceId{1} ? 300 : 100; };
  EXPECT_EQ(order.Pick(100, all), InstanceId{1});
  EXPECT_EQ(order.PickBefore(100, all, before), InstanceId{2});
  EXPECT_EQ(order.PickBefore(100, all, [](InstanceId) { return int64_t{1} << 30; }), InstanceId{1})
      << "never more than all that are queued";
}

// While instances change, come and go.
TEST(RateOrder, PicksAsTheWalkDoes) {
  std::mt19937_64 random(7);
  const auto below = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
  RateOrder order;
  std::vector<PrefillCandidate> all;
  for (int round = 0; round < 4000; ++round) {
    PrefillCandidate one{.instance = {1 + random() % RateOrder::kLooksMax},
                         .queued_tokens = below(3) == 0 ? 0 : below(2000),
                         .unreported_tokens = below(4) == 0 ? below(500) : 0,
                         .tokens_per_second = static_cast<double>(500 + 100 * below(20))};
    std::erase_if(all, [&](const auto& known) { return known.instance == one.instance; });
    if (below(8) == 0) {
      order.Remove(one.instance);
    } else {
      order.Set(one);
      all.push_back(one);
    }
    ASSERT_TRUE(order.CheckInvariants().ok()) << order.CheckInvariants();
    const int64_t tokens = 1 + below(4000);
    const InstanceId tried{1 + random() % RateOrder::kLooksMax};
    std::vector<PrefillCandidate> allowed = all;
    std::erase_if(allowed, [&](const auto& known) { return known.instance == tried; });
    const auto walked = PickByWalk(allowed, tokens);
    const auto picked = order.Pick(tokens, [&](InstanceId instance) { return instance != tried; });
    ASSERT_EQ(picked.has_value(), walked.has_value());
    if (!picked.has_value()) continue;
    EXPECT_DOUBLE_EQ(EndOf(*order.Find(*picked), tokens), EndOf(*order.Find(*walked), tokens));
  }
}

TEST(RateOrder, PicksWhereThePromptIsDoneFirst) {
  RateOrder order;
  const auto pick = [&order](int64_t tokens) {
    return order.Pick(tokens, [](InstanceId) { return true; });
  };
  EXPECT_EQ(pick(10), std::nullopt);
  order.Set({{1}, 500, 0, 100});
  order.Set({{2}, 400, 0, 100});
  EXPECT_EQ(pick(10), InstanceId{2});
  order.Set({{2}, 3000, 0, 500});
  EXPECT_EQ(pick(1000), InstanceId{2})
      << "a faster one gets a long prompt despite its longer queue";
  order.Set({{1}, 0, 0, 100});
  order.Set({{2}, 0, 0, 100});
  EXPECT_EQ(pick(10), InstanceId{1});
}

TEST(RateOrder, OfTheIdleItLooksAtTheFastestOnly) {
  RateOrder order;
  for (uint64_t i = 1; i <= 1000; ++i) {
    order.Set({.instance = {i}, .tokens_per_second = 1000.0 + static_cast<double>(i)});
  }
  // The fastest of all is busy: the idle ones could not be told by their ends alone.
  order.Set({.instance = {2000}, .queued_tokens = 100'000, .tokens_per_second = 9000});
  int asked = 0;
  const auto pick = order.Pick(100, [&](InstanceId) { return ++asked > 0; });
  EXPECT_EQ(pick, InstanceId{1000});
  EXPECT_EQ(asked, 1);
}

TEST(RateOrder, ItLooksAtABoundedNumber) {
  RateOrder order;
  for (uint64_t i = 1; i <= 1000; ++i) {
    order.Set(
        {.instance = {i}, .queued_tokens = static_cast<int64_t>(i), .tokens_per_second = 100});
  }
  order.Set({.instance = {2000}, .queued_tokens = 1'000'000, .tokens_per_second = 1e9});
  int asked = 0;
  EXPECT_EQ(order.Pick(1'000'000, [&](InstanceId) { return ++asked > 0; }), InstanceId{2000});
  EXPECT_LE(asked, static_cast<int>(RateOrder::kLooksMax));
  order.Set({.instance = {2000}, .queued_tokens = 1'000'000'000'000, .tokens_per_second = 1e9});
  asked = 0;
  EXPECT_EQ(order.Pick(1'000'000, [&](InstanceId) { return ++asked > 0; }), InstanceId{1});
  EXPECT_EQ(asked, static_cast<int>(RateOrder::kLooksMax));
}

}  // namespace
}  // namespace skein::scheduler
