// TenantBudgets: what each tenant may ask of one router, and what it has used.
//
// A request is begun, when it has arrived: it takes one of the tenant's requests per minute and one
// of those that may run at a time. It reserves tokens, when its prompt is known: those of its
// prompts and the most that it may sample. It ends once, and what it has reserved and not used
// comes back. Each of these may be refused, and a refused step takes nothing.
//
// Lines of offline jobs are counted and not limited: they run on what online requests leave.
//
// New limits apply at once; what is used, reserved and running stays.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "scheduler/base/time.h"
#include "scheduler/tenants/token_bucket.h"

namespace skein::scheduler::tenants {

// 0: no limit. Of one router.
struct TenantLimits {
  int64_t requests_per_minute = 0;
  int64_t tokens_per_minute = 0;
  int64_t concurrency = 0;  // requests at a time
  bool operator==(const TenantLimits&) const = default;
};

enum class Limit { kRequests, kTokens, kConcurrency };
inline constexpr std::array<Limit, 3> kLimits = {Limit::kRequests, Limit::kTokens,
                                                 Limit::kConcurrency};
std::string_view ToString(Limit limit);  // "requests_per_minute", as in the file of tenants

// Why a step is refused.
struct Excess {
  Limit limit = Limit::kRequests;
  int64_t most = 0;   // the limit
  int64_t used = 0;   // of it, now
  int64_t asked = 0;  // by this request
  // How long until this limit would let it pass; 0: not known (concurrency). kNever: it asks for
  // more than the limit.
  TimeUs retry_after_us = 0;
};

enum class Outcome { kFinished, kFailed, kCancelled, kRefused };
inline constexpr std::array<Outcome, 4> kOutcomes = {Outcome::kFinished, Outcome::kFailed,
                                                     Outcome::kCancelled, Outcome::kRefused};
std::string_view ToString(Outcome outcome);  // "finished", ...

struct TokenUse {
  int64_t prompt = 0;
  int64_t output = 0;
  bool operator==(const TokenUse&) const = default;
};

// Since the start of the process; never less than before.
struct TenantTotals {
  std::map<Outcome, int64_t> ended;      // requests and lines that were begun, and have ended
  std::map<Limit, int64_t> over_limits;  // refused steps; a request that is refused tokens is in
                                         // `ended`, too
  TokenUse tokens;                       // of what has ended
  bool operator==(const TenantTotals&) const = default;
};

// How a tenant stands.
struct TenantState {
  TenantLimits limits;
  int64_t running = 0;          // requests
  int64_t lines = 0;            // of offline jobs, that run
  int64_t reserved_tokens = 0;  // by running requests
  int64_t requests_left = 0;    // of this minute's; INT64_MAX: no limit. As `tokens_left`
  int64_t tokens_left = 0;
  TimeUs requests_full_us = 0;  // how long until the whole limit is left again
  TimeUs tokens_full_us = 0;
  TenantTotals totals;
};

// Pure; one thread at a time.
class TenantBudgets {
 public:
  // Tenants that are not named have no limits from now on.
  void SetLimits(const std::map<std::string, TenantLimits>& limits, TimeUs now);

  // Empty: it is begun, and `*ticket` is its number, which is never 0.
  std::optional<Excess> Begin(const std::string& tenant, TimeUs now, uint64_t* ticket);
  uint64_t BeginLine(const std::string& tenant);
  // Empty: they are reserved. At most once for each ticket; REQUIRES: it has not ended.
  std::optional<Excess> Reserve(uint64_t ticket, int64_t tokens, TimeUs now);
  // REQUIRES: it has not ended. The use may exceed what was reserved, and counts then.
  void End(uint64_t ticket, Outcome outcome, TokenUse use, TimeUs now);

  // Of a tenant that nothing is known of: no limits, nothing used.
  TenantState Look(const std::string& tenant, TimeUs now);
  // Of all that were named or have begun something, by name.
  std::map<std::string, TenantState> LookAll(TimeUs now);

  // "": all is well. Otherwise what is not: (1) a tenant's running requests, lines and reserved
  // tokens are those of its tickets.
  std::string CheckInvariants() const;

 private:
  struct Tenant {
    TenantLimits limits;
    TokenBucket requests, tokens;
    int64_t running = 0, lines = 0, reserved = 0;
    TenantTotals totals;
  };
  struct Ticket {
    std::string tenant;
    int64_t reserved = 0;
    bool line = false;
  };
  std::optional<Excess> Refuse(Tenant* tenant, const Excess& excess);

  std::map<std::string, Tenant> tenants_;
  std::map<uint64_t, Ticket> tickets_;
  uint64_t last_ticket_ = 0;
};

}  // namespace skein::scheduler::tenants
