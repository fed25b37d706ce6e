// What clients are told of their tenant's limits, in OpenAI's words where it has them.
#pragma once

#include <string>
#include <vector>

#include "scheduler/tenants/tenant_budgets.h"
#include "services/http/message.h"
#include "services/openai/api_error.h"

namespace skein::services {

// 429 rate_limit_exceeded: which limit of `tenant`, how much of it is used, what was asked.
openai::ApiError LimitError(const scheduler::tenants::Excess& excess, const std::string& tenant);

// To that answer. X-Skein-Exceeded: the limit's name in the file of tenants. "X-Should-Retry:
// false", which OpenAI's clients know, where another try never helps.
std::vector<http::Header> ExceededHeaders(const scheduler::tenants::Excess& excess);

// X-RateLimit-Limit-Requests, -Remaining-Requests, -Reset-Requests ("1.5s", until all are left
// again), and the same of tokens; of the limits that the tenant has.
std::vector<http::Header> RateLimitHeaders(const scheduler::tenants::TenantState& state);

// "250ms", "6.5s", "2m0s": a duration, rounded up.
std::string DurationText(int64_t us);

}  // namespace skein::services
