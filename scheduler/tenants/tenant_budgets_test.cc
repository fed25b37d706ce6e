// No tenant gets more than its limits, in whatever order requests begin, reserve, end and limits
// change; and what it has used adds up.
#include "scheduler/tenants/tenant_budgets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "absl/numeric/int128.h"
#include "scheduler/vocabulary/mix64.h"

namespace skein::scheduler::tenants {
namespace {

constexpr TimeUs kStart = 5'000'000'000;
constexpr TimeUs kMinute = 60'000'000;

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  int64_t Below(int64_t n) {
    state_ += kMix64Step;
    return static_cast<int64_t>(Mix64(state_) % static_cast<uint64_t>(n));
  }

 private:
  uint64_t state_;
};

TEST(TokenBucketTest, IsFullAtFirstAndFillsSteadily) {
  TokenBucket bucket;
  EXPECT_EQ(bucket.Left(kStart), INT64_MAX);
  EXPECT_EQ(bucket.WaitFor(int64_t{1} << 40, kStart), 0);
  bucket.SetPerMinute(60, kStart);
  EXPECT_EQ(bucket.Left(kStart), 60);
  EXPECT_EQ(bucket.WaitFor(61, kStart), kNever);
  bucket.Take(60, kStart);
  EXPECT_EQ(bucket.Left(kStart), 0);
  EXPECT_EQ(bucket.WaitFor(1, kStart), 1'000'000);
  EXPECT_EQ(bucket.WaitFor(60, kStart), kMinute);
  EXPECT_EQ(bucket.FullIn(kStart), kMinute);
  EXPECT_EQ(bucket.WaitFor(1, kStart + 999'999), 1);
  EXPECT_EQ(bucket.WaitFor(1, kStart + 1'000'000), 0);
  EXPECT_EQ(bucket.Left(kStart + kMinute / 2), 30);
  EXPECT_EQ(bucket.Left(kStart + 10 * kMinute), 60);
}

TEST(TokenBucketTest, WhatComesBackIsAsIfItHadNeverBeenTaken) {
  TokenBucket bucket;
  bucket.SetPerMinute(600, kStart);
  bucket.Take(500, kStart);
  const TimeUs later = kStart + 10'000'000;  // 100 have come meanwhile
  bucket.GiveBack(450, later);
  EXPECT_EQ(bucket.Left(later), 600);
  bucket.Take(500, later);
  bucket.GiveBack(100, later);
  EXPECT_EQ(bucket.Left(later), 200);
}

TEST(TokenBucketTest, ALimitThatChangesKeepsWhatIsUsed) {
  TokenBucket bucket;
  bucket.SetPerMinute(100, kStart);
  bucket.Take(80, kStart);
  bucket.SetPerMinute(1000, kStart);
  EXPECT_EQ(bucket.Left(kStart), 920);
  bucket.SetPerMinute(50, kStart);
  EXPECT_EQ(bucket.Left(kStart), -30);
  EXPECT_GT(bucket.WaitFor(1, kStart), 0);
}

// The same bucket, as what is left in 128 bits.
struct LevelBucket {
  absl::int128 level = 0;
  int64_t per_minute = 0;
  TimeUs at = 0;

  absl::int128 full() const { return absl::int128(per_minute) * kMinute; }
  void Advance(TimeUs now) {
    level += absl::int128(now - at) * per_minute;
    if (level > full()) level = full();
    at = now;
  }
  TimeUs WaitFor(int64_t count) const {
    if (count > per_minute) return kNever;
    const absl::int128 lacking = absl::int128(count) * kMinute - level;
    return lacking <= 0 ? 0 : static_cast<TimeUs>((lacking + per_minute - 1) / per_minute);
  }
};

TEST(TokenBucketTest, IsTheSameAsASimplerOneOverRandomHistories) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    TokenBucket bucket;
    LevelBucket wanted;
    wanted.at = kStart;
    wanted.per_minute = 1 + random.Below(seed % 5 == 0 ? TokenBucket::kPerMinuteMax : 5000);
    wanted.level = wanted.full();
    bucket.SetPerMinute(wanted.per_minute, kStart);
    TimeUs now = kStart;
    absl::int128 taken = 0;
    for (int i = 0; i < 200; ++i) {
      now += random.Below(random.Below(10) == 0 ? 3 * kMinute : kMinute / 20);
      wanted.Advance(now);
      const int64_t count = 1 + random.Below(wanted.per_minute + wanted.per_minute / 8 + 1);
      ASSERT_EQ(bucket.WaitFor(count, now), wanted.WaitFor(count)) << seed;
      if (wanted.WaitFor(count) > 0) continue;
      bucket.Take(count, now);
      wanted.level -= absl::int128(count) * kMinute;
      const int64_t back = random.Below(count + 1);
      bucket.GiveBack(back, now);
      wanted.level += absl::int128(back) * kMinute;
      taken += count - back;
      const absl::int128 most = wanted.full() + absl::int128(now - kStart) * wanted.per_minute;
      ASSERT_TRUE(taken * kMinute <= most) << seed;
    }
  }
}

TEST(TenantBudgetsTest, EachLimitIsRefusedByName) {
  TenantBudgets budgets;
  budgets.SetLimits({{"a", {2, 100, 1}}}, kStart);
  uint64_t first = 0, second = 0;
  ASSERT_FALSE(budgets.Begin("a", kStart, &first).has_value());
  auto excess = budgets.Begin("a", kStart, &second);
  ASSERT_TRUE(excess.has_value());
  EXPECT_EQ(excess->limit, Limit::kConcurrency);
  EXPECT_EQ(excess->most, 1);
  ASSERT_FALSE(budgets.Reserve(first, 80, kStart).has_value());
  budgets.End(first, Outcome::kFinished, {10, 20}, kStart);
  ASSERT_FALSE(budgets.Begin("a", kStart, &first).has_value());
  excess = budgets.Reserve(first, 71, kStart);
  ASSERT_TRUE(excess.has_value());
  EXPECT_EQ(excess->limit, Limit::kTokens);
  EXPECT_EQ(excess->used, 30);
  EXPECT_EQ(excess->asked, 71);
  EXPECT_EQ(excess->retry_after_us, 600'000);
  EXPECT_EQ(budgets.Reserve(first, 101, kStart)->retry_after_us, kNever);
  EXPECT_FALSE(budgets.Reserve(first, 70, kStart).has_value());
  budgets.End(first, Outcome::kCancelled, {}, kStart);
  excess = budgets.Begin("a", kStart, &second);
  ASSERT_TRUE(excess.has_value());
  EXPECT_EQ(excess->limit, Limit::kRequests);
  EXPECT_EQ(excess->retry_after_us, kMinute / 2);
  const TenantState state = budgets.Look("a", kStart);
  EXPECT_EQ(state.tokens_left, 70);
  EXPECT_EQ(state.requests_left, 0);
  EXPECT_EQ(state.totals.over_limits.at(Limit::kTokens), 2);
  EXPECT_EQ(state.totals.over_limits.at(Limit::kRequests), 1);
  EXPECT_EQ(state.totals.over_limits.at(Limit::kConcurrency), 1);
}

TEST(TenantBudgetsTest, OneTenantsUseIsNoneOfAnothers) {
  TenantBudgets budgets;
  budgets.SetLimits({{"a", {1, 0, 0}}, {"b", {1, 0, 0}}}, kStart);
  uint64_t ticket = 0;
  ASSERT_FALSE(budgets.Begin("a", kStart, &ticket).has_value());
  EXPECT_TRUE(budgets.Begin("a", kStart, &ticket).has_value());
  EXPECT_FALSE(budgets.Begin("b", kStart, &ticket).has_value());
  EXPECT_FALSE(budgets.Begin("nobody", kStart, &ticket).has_value());
}

TEST(TenantBudgetsTest, NewLimitsForgiveNothing) {
  TenantBudgets budgets;
  budgets.SetLimits({{"a", {0, 100, 0}}}, kStart);
  uint64_t ticket = 0;
  ASSERT_FALSE(budgets.Begin("a", kStart, &ticket).has_value());
  ASSERT_FALSE(budgets.Reserve(ticket, 90, kStart).has_value());
  budgets.SetLimits({{"a", {0, 100, 0}}}, kStart);
  EXPECT_EQ(budgets.Look("a", kStart).tokens_left, 10);
  budgets.SetLimits({}, kStart);
  EXPECT_EQ(budgets.Look("a", kStart).tokens_left, INT64_MAX);
  budgets.End(ticket, Outcome::kFinished, {1, 2}, kStart);
  EXPECT_EQ(budgets.Look("a", kStart).totals.tokens, (TokenUse{1, 2}));
}

TEST(TenantBudgetsTest, LinesOfJobsAreCountedAndNotLimited) {
  TenantBudgets budgets;
  budgets.SetLimits({{"a", {1, 1, 1}}}, kStart);
  const uint64_t first = budgets.BeginLine("a"), second = budgets.BeginLine("a");
  EXPECT_FALSE(budgets.Reserve(first, 1000, kStart).has_value());
  EXPECT_EQ(budgets.Look("a", kStart).lines, 2);
  budgets.End(first, Outcome::kFinished, {700, 30}, kStart);
  budgets.End(second, Outcome::kFailed, {}, kStart);
  const TenantState state = budgets.Look("a", kStart);
  EXPECT_EQ(state.lines, 0);
  EXPECT_EQ(state.tokens_left, 1);
  EXPECT_EQ(state.totals.tokens, (TokenUse{700, 30}));
}

// A history with cancels, failures, reloads and lines, beside a count that is kept apart.
TEST(TenantBudgetsTest, UseAddsUpOverRandomHistories) {
  const std::vector<std::string> names = {"a", "b", "c"};
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Random random(seed);
    TenantBudgets budgets;
    std::map<std::string, TenantLimits> limits;
    const auto draw = [&] {
      limits.clear();
      for (const std::string& name : names) {
        if (random.Below(4) == 0) continue;
        limits[name] = {random.Below(3) * 50, random.Below(3) * 4000, random.Below(3) * 4};
      }
      return limits;
    };
    struct Live {
      uint64_t ticket;
      std::string tenant;
      int64_t reserved;
      bool line;
    };
    std::vector<Live> live;
    std::map<std::string, TenantTotals> wanted;
    TimeUs now = kStart;
    budgets.SetLimits(draw(), now);
    for (int step = 0; step < 1000; ++step) {
      now += random.Below(300'000);
      const std::string& name = names[static_cast<size_t>(random.Below(3))];
      const int64_t what = random.Below(100);
      const auto running = static_cast<int64_t>(std::count_if(
          live.begin(), live.end(), [&](const Live& l) { return l.tenant == name && !l.line; }));
      if (what < 45) {
        uint64_t ticket = 0;
        const auto excess = budgets.Begin(name, now, &ticket);
        const int64_t most = limits.contains(name) ? limits[name].concurrency : 0;
        if (most > 0 && running >= most) {
          ASSERT_TRUE(excess.has_value() && excess->limit == Limit::kConcurrency);
        }
        if (excess.has_value()) {
          ++wanted[name].over_limits[excess->limit];
          continue;
        }
        const int64_t tokens = 1 + random.Below(800);
        if (const auto over = budgets.Reserve(ticket, tokens, now)) {
          ++wanted[name].over_limits[over->limit];
          ++wanted[name].ended[Outcome::kRefused];
          budgets.End(ticket, Outcome::kRefused, {}, now);
        } else {
          live.push_back({ticket, name, tokens, false});
        }
      } else if (what < 55) {
        live.push_back({budgets.BeginLine(name), name, 0, true});
      } else if (what < 97 && !live.empty()) {
        const auto index = static_cast<size_t>(random.Below(static_cast<int64_t>(live.size())));
        const Live one = live[index];
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(index));
        const Outcome outcome = kOutcomes[static_cast<size_t>(random.Below(4))];
        const int64_t prompt = random.Below(one.reserved + 1);
        const TokenUse use = {prompt, random.Below(one.reserved - prompt + 1)};
        budgets.End(one.ticket, outcome, use, now);
        ++wanted[one.tenant].ended[outcome];
        wanted[one.tenant].tokens.prompt += use.prompt;
        wanted[one.tenant].tokens.output += use.output;
      } else if (what >= 97) {
        budgets.SetLimits(draw(), now);
      }
      ASSERT_EQ(budgets.CheckInvariants(), "") << seed;
    }
    for (const auto& [name, state] : budgets.LookAll(now)) {
      EXPECT_EQ(state.totals, wanted[name]) << name << " of seed " << seed;
    }
  }
}

}  // namespace
}  // namespace skein::scheduler::tenants
