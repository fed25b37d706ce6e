// What clients are told of limits, and charges that end in every way.
#include "services/router/access/accounts.h"

#include <gtest/gtest.h>

#include "services/router/access/limit_answer.h"

namespace skein::services {
namespace {

using scheduler::tenants::Excess;
using scheduler::tenants::Limit;
using scheduler::tenants::Outcome;
using scheduler::tenants::TenantLimits;
using scheduler::tenants::TenantState;
using scheduler::tenants::TokenUse;

http::Request RequestOf(const std::string& tenant) {
  auto caller = std::make_shared<Caller>();
  caller->tenant = tenant;
  http::Request request;
  request.caller = caller;
  return request;
}

TEST(LimitAnswerTest, DurationsAreAsOpenAiWritesThem) {
  const std::pair<int64_t, const char*> cases[] = {
      {0, "0ms"},           {1, "1ms"},           {250'000, "250ms"},    {999'001, "1s"},
      {1'000'001, "1.1s"},  {6'500'000, "6.5s"},  {59'900'000, "59.9s"}, {59'950'000, "1m0s"},
      {60'000'000, "1m0s"}, {125'000'001, "2m6s"}};
  for (const auto& [us, text] : cases) EXPECT_EQ(DurationText(us), text) << us;
}

TEST(LimitAnswerTest, AnErrorSaysWhatWasExceededAndByHowMuch) {
  EXPECT_EQ(LimitError({Limit::kTokens, 100, 90, 20, 6'000'000}, "a").message,
            "Rate limit reached for tenant 'a' on tokens per minute: limit 100, used 90, requested "
            "20. Try again in 6s.");
  EXPECT_EQ(LimitError({Limit::kRequests, 2, 2, 1, 400'000}, "").message,
            "Rate limit reached on requests per minute: limit 2, used 2, requested 1. Try again in "
            "400ms.");
  EXPECT_EQ(
      LimitError({Limit::kConcurrency, 3, 3, 1, 0}, "a").message,
      "Rate limit reached for tenant 'a' on requests at a time: limit 3, running 3. Try again "
      "when one of them has ended.");
  const Excess never = {Limit::kTokens, 100, 0, 200, scheduler::kNever};
  EXPECT_EQ(LimitError(never, "a").message,
            "Request too large for tenant 'a' on tokens per minute: limit 100, requested 200 (the "
            "prompt and the most that may be sampled). Send a shorter prompt or ask for fewer "
            "tokens.");
  EXPECT_EQ(LimitError(never, "a").status, 429);
  EXPECT_EQ(LimitError(never, "a").code, "rate_limit_exceeded");
  EXPECT_EQ(http::FindHeader(ExceededHeaders(never), "x-should-retry"), "false");
}

TEST(AccountsTest, AChargeEndsOnceWhateverComesAfter) {
  Accounts accounts(nullptr);
  accounts.SetLimits({{"a", {.limits = {.tokens_per_minute = 1000}}}});
  std::optional<Excess> excess;
  auto charge = accounts.Begin(RequestOf("a"), &excess);
  ASSERT_FALSE(excess.has_value());
  EXPECT_FALSE(charge->Reserve(900).has_value());
  charge->End(Outcome::kFinished, 200, "", {10, 20});
  charge->Refused(500, "late");
  charge.reset();
  accounts.Begin(RequestOf("a"), &excess).reset();  // dropped
  const TenantState state = accounts.Look("a");
  EXPECT_EQ(state.totals.ended.at(Outcome::kFinished), 1);
  EXPECT_EQ(state.totals.ended.at(Outcome::kRefused), 1);
  EXPECT_EQ(state.totals.tokens, (TokenUse{10, 20}));
  EXPECT_EQ(state.running, 0);
  EXPECT_GE(state.tokens_left, 970);
  EXPECT_EQ(accounts.CheckInvariants(), "");
}

TEST(AccountsTest, EachRouterEnforcesItsShare) {
  Accounts accounts(nullptr);
  accounts.SetRouters(2);
  accounts.SetLimits({{"a", {.limits = {.requests_per_minute = 4}}}});
  std::optional<Excess> excess;
  for (int i = 0; i < 2; ++i) {
    accounts.Begin(RequestOf("a"), &excess);
    EXPECT_FALSE(excess.has_value());
  }
  accounts.Begin(RequestOf("a"), &excess);
  ASSERT_TRUE(excess.has_value());
  EXPECT_EQ(excess->most, 2);
  EXPECT_EQ(accounts.Look("a").totals.over_limits.at(Limit::kRequests), 1);
}

TEST(AccountsTest, WhatIsUsedStaysWhenRoutersComeAndGo) {
  Accounts accounts(nullptr);
  accounts.SetLimits({{"a", {.limits = {.requests_per_minute = 4, .concurrency = 3}}}});
  std::optional<Excess> excess;
  const auto begin = [&] {
    accounts.Begin(RequestOf("a"), &excess);
    return !excess.has_value();
  };
  EXPECT_TRUE(begin());
  accounts.SetRouters(2);
  EXPECT_EQ(accounts.routers(), 2);
  EXPECT_EQ(accounts.Look("a").limits, (TenantLimits{2, 0, 2})) << "rounded up";
  EXPECT_TRUE(begin());
  EXPECT_FALSE(begin());
  accounts.SetRouters(1);
  EXPECT_EQ(accounts.Look("a").limits, (TenantLimits{4, 0, 3}));
  EXPECT_TRUE(begin());
  EXPECT_TRUE(begin());
  EXPECT_FALSE(begin());
  accounts.SetRouters(4);
  accounts.SetLimits({{"a", {.limits = {.requests_per_minute = 8}}}});
  EXPECT_EQ(accounts.Look("a").limits, (TenantLimits{2, 0, 0})) << "new limits are divided, too";
}

}  // namespace
}  // namespace skein::services
