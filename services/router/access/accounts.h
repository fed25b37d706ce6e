// Accounts: enforces the tenants' limits at this router, and keeps what each has used, as metrics
// and in the audit log. A request has one Charge, from its arrival to its end, through every
// attempt that the router makes at it; so attempts after a loss cost nothing more.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/tenants/tenant_budgets.h"
#include "services/http/message.h"
#include "services/metrics/metrics.h"
#include "services/router/access/audit_log.h"
#include "services/router/access/caller.h"
#include "services/router/access/tenants_file.h"

namespace skein::services {

class Charge;

// Any thread.
class Accounts {
 public:
  // `audit` outlives it; null: there is no audit log.
  explicit Accounts(AuditLog* audit) : audit_(audit) {}

  // The limits of the whole cluster, from now on.
  void SetLimits(const Tenants& tenants);
  // How many routers share the limits evenly, from now on; 1 until the first call.
  void SetRouters(int64_t routers);
  int64_t routers();

  // A client's request has arrived. Never null. `*excess` is set: the request is over a limit; it
  // is to be refused, and the charge be dropped after Refused.
  std::shared_ptr<Charge> Begin(const http::Request& request,
                                std::optional<scheduler::tenants::Excess>* excess);
  // A line of an offline job: counted, not limited.
  std::shared_ptr<Charge> BeginLine(const http::Request& request);

  scheduler::tenants::TenantState Look(const std::string& tenant);
  std::map<std::string, scheduler::tenants::TenantState> LookAll();
  // "": all is well.
  std::string CheckInvariants();

  // Brings the metrics up to date. At most kLabelsMax tenants have series of their own; the others
  // are "other" together. "-" are requests of no tenant.
  void Refresh(Metrics* metrics);
  static constexpr size_t kLabelsMax = 1000;

 private:
  friend class Charge;
  const std::string& LabelOf(const std::string& tenant);
  void Enforce();  // this router's part of the limits; REQUIRES mutex_

  AuditLog* const audit_;
  std::mutex mutex_;
  scheduler::tenants::TenantBudgets budgets_;                       // guarded by mutex_
  std::map<std::string, scheduler::tenants::TenantLimits> limits_;  // likewise; of the cluster
  int64_t routers_ = 1;                                             // likewise
  std::mutex labels_mutex_;
  std::map<std::string, std::string> labels_;  // by tenant; guarded by labels_mutex_
};

// One request's part of its tenant's account. One thread at a time. The first of End and Refused
// counts; dropped without either, it was refused. The accounts outlive it.
class Charge {
 public:
  ~Charge();
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;

  void SetModel(const std::string& model) { record_.model = model; }
  // Empty: they are reserved until the end. At most once.
  std::optional<scheduler::tenants::Excess> Reserve(int64_t tokens);
  // What is left of the tenant's limits, for the answer.
  std::vector<http::Header> Headers();
  const std::string& tenant() const { return record_.tenant; }

  void Refused(int status, const std::string& code);
  void End(scheduler::tenants::Outcome outcome, int status, const std::string& code,
           scheduler::tenants::TokenUse use);

 private:
  friend class Accounts;
  Charge(Accounts* accounts, const http::Request& request, bool offline);

  Accounts* const accounts_;
  AuditRecord record_;
  const int64_t arrived_us_;
  uint64_t ticket_ = 0;  // 0: it was refused at its beginning
  bool ended_ = false;
};

}  // namespace skein::services
