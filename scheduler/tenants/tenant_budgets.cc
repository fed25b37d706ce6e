#include "scheduler/tenants/tenant_budgets.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler::tenants {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

std::string_view ToString(Limit limit) {
  switch (limit) {
    case Limit::kRequests:
      return "requests_per_minute";
    case Limit::kTokens:
      return "tokens_per_minute";
    case Limit::kConcurrency:
      return "concurrency";
  }
  return "";
}

std::string_view ToString(Outcome outcome) {
  switch (outcome) {
    case Outcome::kFinished:
      return "finished";
    case Outcome::kFailed:
      return "failed";
    case Outcome::kCancelled:
      return "cancelled";
    case Outcome::kRefused:
      return "refused";
  }
  return "";
}

void TenantBudgets::SetLimits(const std::map<std::string, TenantLimits>& limits, TimeUs now) {
  for (const auto& [name, of_tenant] : limits) tenants_.try_emplace(name);
  for (auto& [name, tenant] : tenants_) {
    const auto named = limits.find(name);
    tenant.limits = named == limits.end() ? TenantLimits{} : named->second;
    tenant.requests.SetPerMinute(tenant.limits.requests_per_minute, now);
    tenant.tokens.SetPerMinute(tenant.limits.tokens_per_minute, now);
  }
}

std::optional<Excess> TenantBudgets::Refuse(Tenant* tenant, const Excess& excess) {
  ++tenant->totals.over_limits[excess.limit];
  return excess;
}

std::optional<Excess> TenantBudgets::Begin(const std::string& name, TimeUs now, uint64_t* ticket) {
  Tenant& tenant = tenants_[name];
  const TenantLimits& limits = tenant.limits;
  if (limits.concurrency > 0 && tenant.running >= limits.concurrency) {
    return Refuse(&tenant, {Limit::kConcurrency, limits.concurrency, tenant.running, 1, 0});
  }
  if (const TimeUs wait = tenant.requests.WaitFor(1, now); wait > 0) {
    const int64_t most = limits.requests_per_minute;
    return Refuse(&tenant, {Limit::kRequests, most, most - tenant.requests.Left(now), 1, wait});
  }
  tenant.requests.Take(1, now);
  ++tenant.running;
  *ticket = ++last_ticket_;
  tickets_[*ticket] = {name};
  return std::nullopt;
}

uint64_t TenantBudgets::BeginLine(const std::string& name) {
  ++tenants_[name].lines;
  tickets_[++last_ticket_] = {name, 0, /*line=*/true};
  return last_ticket_;
}

std::optional<Excess> TenantBudgets::Reserve(uint64_t number, int64_t tokens, TimeUs now) {
  const auto it = tickets_.find(number);
  SKEIN_CHECK(it != tickets_.end() && it->second.reserved == 0);
  Ticket& ticket = it->second;
  if (ticket.line) return std::nullopt;
  Tenant& tenant = tenants_[ticket.tenant];
  if (const TimeUs wait = tenant.tokens.WaitFor(tokens, now); wait > 0) {
    const int64_t most = tenant.limits.tokens_per_minute;
    return Refuse(&tenant, {Limit::kTokens, most, most - tenant.tokens.Left(now), tokens, wait});
  }
  tenant.tokens.Take(tokens, now);
  tenant.reserved += tokens;
  ticket.reserved = tokens;
  return std::nullopt;
}

void TenantBudgets::End(uint64_t number, Outcome outcome, TokenUse use, TimeUs now) {
  const auto it = tickets_.find(number);
  SKEIN_CHECK(it != tickets_.end());
  const Ticket ticket = std::move(it->second);
  tickets_.erase(it);
  Tenant& tenant = tenants_[ticket.tenant];
  ++tenant.totals.ended[outcome];
  tenant.totals.tokens.prompt += use.prompt;
  tenant.totals.tokens.output += use.output;
  if (ticket.line) {
    --tenant.lines;
    return;
  }
  --tenant.running;
  tenant.reserved -= ticket.reserved;
  const int64_t used = use.prompt + use.output;
  if (used < ticket.reserved) tenant.tokens.GiveBack(ticket.reserved - used, now);
  if (used > ticket.reserved) tenant.tokens.Take(used - ticket.reserved, now);
}

TenantState TenantBudgets::Look(const std::string& name, TimeUs now) {
  const auto it = tenants_.find(name);
  if (it == tenants_.end()) return {.requests_left = INT64_MAX, .tokens_left = INT64_MAX};
  Tenant& tenant = it->second;
  return {.limits = tenant.limits,
          .running = tenant.running,
          .lines = tenant.lines,
          .reserved_tokens = tenant.reserved,
          .requests_left = tenant.requests.Left(now),
          .tokens_left = tenant.tokens.Left(now),
          .requests_full_us = tenant.requests.FullIn(now),
          .tokens_full_us = tenant.tokens.FullIn(now),
          .totals = tenant.totals};
}

std::map<std::string, TenantState> TenantBudgets::LookAll(TimeUs now) {
  std::map<std::string, TenantState> all;
  for (const auto& [name, tenant] : tenants_) all.emplace(name, Look(name, now));
  return all;
}

std::string TenantBudgets::CheckInvariants() const {
  struct Sums {
    int64_t running = 0, lines = 0, reserved = 0;
  };
  std::map<std::string, Sums> sums;
  for (const auto& [number, ticket] : tickets_) {
    Sums& of_tenant = sums[ticket.tenant];
    ++(ticket.line ? of_tenant.lines : of_tenant.running);
    of_tenant.reserved += ticket.reserved;
  }
  for (const auto& [name, tenant] : tenants_) {
    const Sums of_tenant = sums[name];
    if (of_tenant.running != tenant.running || of_tenant.lines != tenant.lines ||
        of_tenant.reserved != tenant.reserved) {
      return absl::StrCat("(1) of tenant '", View(name), "'");
    }
  }
  return {};
}

}  // namespace skein::scheduler::tenants
