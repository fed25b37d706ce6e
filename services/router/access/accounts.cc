#include "services/router/access/accounts.h"

#include <utility>

#include "services/router/access/limit_answer.h"
#include "services/shell/loop.h"

namespace skein::services {
namespace {

using scheduler::tenants::Excess;
using scheduler::tenants::Outcome;
using scheduler::tenants::TenantLimits;
using scheduler::tenants::TenantState;
using scheduler::tenants::TokenUse;

}  // namespace

void Accounts::SetLimits(const Tenants& tenants) {
  std::map<std::string, TenantLimits> limits;
  for (const auto& [name, tenant] : tenants) limits[name] = tenant.limits;
  std::lock_guard lock(mutex_);
  limits_ = std::move(limits);
  Enforce();
}

void Accounts::SetRouters(int64_t routers) {
  std::lock_guard lock(mutex_);
  if (std::exchange(routers_, routers) != routers) Enforce();
}

int64_t Accounts::routers() {
  std::lock_guard lock(mutex_);
  return routers_;
}

void Accounts::Enforce() {
  std::map<std::string, TenantLimits> parts;
  for (const auto& [name, limits] : limits_) parts[name] = ShareOf(limits, routers_);
  budgets_.SetLimits(parts, MonotonicUs());
}

std::shared_ptr<Charge> Accounts::Begin(const http::Request& request,
                                        std::optional<Excess>* excess) {
  std::shared_ptr<Charge> charge(new Charge(this, request, /*offline=*/false));
  std::lock_guard lock(mutex_);
  *excess = budgets_.Begin(charge->tenant(), MonotonicUs(), &charge->ticket_);
  return charge;
}

std::shared_ptr<Charge> Accounts::BeginLine(const http::Request& request) {
  std::shared_ptr<Charge> charge(new Charge(this, request, /*offline=*/true));
  std::lock_guard lock(mutex_);
  charge->ticket_ = budgets_.BeginLine(charge->tenant());
  return charge;
}

TenantState Accounts::Look(const std::string& tenant) {
  std::lock_guard lock(mutex_);
  return budgets_.Look(tenant, MonotonicUs());
}

std::map<std::string, TenantState> Accounts::LookAll() {
  std::lock_guard lock(mutex_);
  return budgets_.LookAll(MonotonicUs());
}

std::string Accounts::CheckInvariants() {
  std::lock_guard lock(mutex_);
  return budgets_.CheckInvariants();
}

const std::string& Accounts::LabelOf(const std::string& tenant) {
  if (const auto it = labels_.find(tenant); it != labels_.end()) return it->second;
  static const std::string other = "other";
  if (labels_.size() >= kLabelsMax) return other;
  return labels_.emplace(tenant, tenant.empty() ? "-" : tenant).first->second;
}

void Accounts::Refresh(Metrics* metrics) {
  struct Sums {
    std::map<Outcome, int64_t> ended;
    std::map<scheduler::tenants::Limit, int64_t> over_limits;
    TokenUse tokens;
    int64_t running = 0;
  };
  std::lock_guard lock(labels_mutex_);
  std::map<std::string, Sums> sums;
  for (const auto& [name, state] : LookAll()) {
    Sums& of_label = sums[LabelOf(name)];
    for (const Outcome outcome : scheduler::tenants::kOutcomes) {
      const auto it = state.totals.ended.find(outcome);
      of_label.ended[outcome] += it == state.totals.ended.end() ? 0 : it->second;
    }
    for (const auto limit : scheduler::tenants::kLimits) {
      const auto it = state.totals.over_limits.find(limit);
      of_label.over_limits[limit] += it == state.totals.over_limits.end() ? 0 : it->second;
    }
    of_label.tokens.prompt += state.totals.tokens.prompt;
    of_label.tokens.output += state.totals.tokens.output;
    of_label.running += state.running + state.lines;
  }
  for (const auto& [label, of_label] : sums) {
    for (const auto& [outcome, count] : of_label.ended) {
      metrics->Total("skein_tenant_requests_total", "Requests of a tenant that ended, by outcome.",
                     {{"tenant", label}, {"outcome", std::string(ToString(outcome))}}, count);
    }
    for (const auto& [limit, count] : of_label.over_limits) {
      metrics->Total("skein_tenant_over_limit_total",
                     "Requests of a tenant that were refused, by the limit that they exceeded.",
                     {{"tenant", label}, {"limit", std::string(ToString(limit))}}, count);
    }
    for (const auto& [kind, count] : {std::pair("prompt", of_label.tokens.prompt),
                                      std::pair("output", of_label.tokens.output)}) {
      metrics->Total("skein_tenant_tokens_total", "Tokens that a tenant has used, by kind.",
                     {{"tenant", label}, {"kind", kind}}, count);
    }
    metrics
        ->Gauge("skein_tenant_running", "Requests and lines of offline jobs of a tenant that run.",
                {{"tenant", label}})
        .Set(static_cast<double>(of_label.running));
  }
}

Charge::Charge(Accounts* accounts, const http::Request& request, bool offline)
    : accounts_(accounts), arrived_us_(MonotonicUs()) {
  if (request.caller != nullptr) {
    record_.tenant = request.caller->tenant;
    record_.key_id = request.caller->key_id;
  }
  record_.request_id = request.id;
  record_.path = request.path;
  record_.offline = offline;
}

Charge::~Charge() { Refused(0, ""); }

std::optional<Excess> Charge::Reserve(int64_t tokens) {
  std::lock_guard lock(accounts_->mutex_);
  return accounts_->budgets_.Reserve(ticket_, tokens, MonotonicUs());
}

std::vector<http::Header> Charge::Headers() {
  return record_.offline ? std::vector<http::Header>()
                         : RateLimitHeaders(accounts_->Look(record_.tenant));
}

void Charge::Refused(int status, const std::string& code) {
  End(Outcome::kRefused, status, code, {});
}

void Charge::End(Outcome outcome, int status, const std::string& code, TokenUse use) {
  if (std::exchange(ended_, true)) return;
  if (ticket_ != 0) {
    std::lock_guard lock(accounts_->mutex_);
    accounts_->budgets_.End(ticket_, outcome, use, MonotonicUs());
  }
  if (accounts_->audit_ == nullptr) return;
  record_.outcome = std::string(ToString(outcome));
  record_.status = status;
  record_.code = code;
  record_.prompt_tokens = use.prompt;
  record_.output_tokens = use.output;
  record_.took_us = MonotonicUs() - arrived_us_;
  accounts_->audit_->Record(record_);
}

}  // namespace skein::services
