#include "services/router/access/limit_answer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace skein::services {
namespace {

using scheduler::tenants::Excess;
using scheduler::tenants::Limit;

std::string Whose(const std::string& tenant) {
  return tenant.empty() ? "" : absl::StrCat(" for tenant '", tenant, "'");
}

void Add(const char* what, int64_t limit, int64_t left, int64_t full_us,
         std::vector<http::Header>* headers) {
  if (limit == 0) return;
  headers->push_back({absl::StrCat("X-RateLimit-Limit-", what), std::to_string(limit)});
  headers->push_back(
      {absl::StrCat("X-RateLimit-Remaining-", what), std::to_string(std::max<int64_t>(0, left))});
  headers->push_back({absl::StrCat("X-RateLimit-Reset-", what), DurationText(full_us)});
}

}  // namespace

std::string DurationText(int64_t us) {
  const int64_t ms = (us + 999) / 1000;
  if (ms < 1000) return absl::StrCat(ms, "ms");
  const int64_t tenths = (ms + 99) / 100;
  if (tenths < 600) {
    return tenths % 10 == 0 ? absl::StrCat(tenths / 10, "s")
                            : absl::StrCat(tenths / 10, ".", tenths % 10, "s");
  }
  const int64_t seconds = (ms + 999) / 1000;
  return absl::StrCat(seconds / 60, "m", seconds % 60, "s");
}

openai::ApiError LimitError(const Excess& excess, const std::string& tenant) {
  const std::string whose = Whose(tenant);
  std::string message;
  if (excess.limit == Limit::kConcurrency) {
    message =
        absl::StrCat("Rate limit reached", whose, " on requests at a time: limit ", excess.most,
                     ", running ", excess.used, ". Try again when one of them has ended.");
  } else if (excess.retry_after_us == scheduler::kNever) {
    message = absl::StrCat("Request too large", whose, " on tokens per minute: limit ", excess.most,
                           ", requested ", excess.asked,
                           " (the prompt and the most that may be sampled). Send a shorter prompt "
                           "or ask for fewer tokens.");
  } else {
    const bool tokens = excess.limit == Limit::kTokens;
    message =
        absl::StrCat("Rate limit reached", whose, " on ", tokens ? "tokens" : "requests",
                     " per minute: limit ", excess.most, ", used ", excess.used, ", requested ",
                     excess.asked, ". Try again in ", DurationText(excess.retry_after_us), ".");
  }
  return {429, std::move(message), "", "rate_limit_exceeded"};
}

std::vector<http::Header> ExceededHeaders(const Excess& excess) {
  const std::string reason = "rejected-tenant-limit";
  std::vector<http::Header> headers = {
      {"X-Skein-Exceeded", std::string(scheduler::tenants::ToString(excess.limit))},
      {"X-Skein-Dropped-Reason", reason},
      {"X-LLM-D-Request-Dropped-Reason", reason}};
  if (excess.retry_after_us == scheduler::kNever) headers.push_back({"X-Should-Retry", "false"});
  return headers;
}

std::vector<http::Header> RateLimitHeaders(const scheduler::tenants::TenantState& state) {
  std::vector<http::Header> headers;
  Add("Requests", state.limits.requests_per_minute, state.requests_left, state.requests_full_us,
      &headers);
  Add("Tokens", state.limits.tokens_per_minute, state.tokens_left, state.tokens_full_us, &headers);
  return headers;
}

}  // namespace skein::services
