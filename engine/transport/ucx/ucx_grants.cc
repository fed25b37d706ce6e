#include "engine/transport/ucx/ucx_grants.h"

#include <utility>

#include "engine/transport/ucx/ucx_rma.h"

namespace skein::engine {
namespace {

void Tell(Endpoint* endpoint, Message message, uint64_t grant, bool refused = false) {
  Send(endpoint, message,
       {.connection = endpoint->connection, .grant = grant, .refused = refused ? 1u : 0u}, nullptr,
       0, nullptr);
}

}  // namespace

// ---- at the target ----

void UcxGrants::Open(uint64_t grant) {
  std::lock_guard lock(open_mutex_);
  open_.insert(grant);
}

bool UcxGrants::IsOpen(uint64_t grant) const {
  if (grant == 0) return true;
  std::lock_guard lock(open_mutex_);
  return open_.contains(grant);
}

void UcxGrants::Close(uint64_t grant) {
  {
    std::lock_guard lock(open_mutex_);
    open_.erase(grant);
  }
  closing_[grant] = last_mark_;
  const auto writers = writers_.find(grant);
  if (writers == writers_.end()) return;
  for (Endpoint* const source : writers->second) Tell(source, kWithdraw, grant);
}

std::vector<uint64_t> UcxGrants::TakeClosed() {
  std::vector<uint64_t> closed;
  for (const auto& [grant, mark] : closing_) {
    if (writers_.contains(grant)) continue;
    if (mark == 0 || inbox_->Done(mark)) closed.push_back(grant);
  }
  for (const uint64_t grant : closed) closing_.erase(grant);
  return closed;
}

// Permission is for those whose end is seen here, too: processes of this host, and those that UCX
// loses.
void UcxGrants::OnAsk(Endpoint* source, uint64_t grant) {
  const bool given = (source->near || source->ucx != nullptr) && IsOpen(grant);
  if (given) {
    source->writes_under.insert(grant);
    writers_[grant].insert(source);
  }
  Tell(source, kPermit, grant, !given);
}

void UcxGrants::OnWithdrawn(Endpoint* source, uint64_t grant) {
  if (source->writes_under.erase(grant) == 0) return;
  std::set<Endpoint*>& writers = writers_.at(grant);
  writers.erase(source);
  if (writers.empty()) writers_.erase(grant);
}

void UcxGrants::Forget(Endpoint* source) {
  while (!source->writes_under.empty()) OnWithdrawn(source, *source->writes_under.begin());
}

// ---- at the source ----

WireGrants::Permit UcxGrants::Ask(uint64_t endpoint, uint64_t grant) {
  Endpoint* const target = opened_->at(endpoint).get();
  // The target looks at each message.
  if (!target->near && !target->by_rma) return Permit::kGiven;
  if (target->withdrawn.contains(grant)) return Permit::kAsked;
  const auto [known, is_new] = target->permits.try_emplace(grant, Permit::kAsked);
  if (is_new) {
    greet_(target);
    Tell(target, kAsk, grant);
  }
  return known->second;
}

std::vector<uint64_t> UcxGrants::Withdrawn(uint64_t endpoint) {
  const std::map<uint64_t, bool>& withdrawn = opened_->at(endpoint)->withdrawn;
  std::vector<uint64_t> grants;
  for (const auto& [grant, was_given] : withdrawn) grants.push_back(grant);
  return grants;
}

void UcxGrants::Acknowledge(uint64_t endpoint, uint64_t grant) {
  Endpoint* const target = opened_->at(endpoint).get();
  const auto withdrawn = target->withdrawn.extract(grant);
  if (withdrawn.empty() || !withdrawn.mapped()) return;
  if (RmaPending(*target)) return FlushRma(target, nullptr, grant);
  Tell(target, kWithdrawn, grant);
}

bool UcxGrants::Asks(uint64_t endpoint) const { return opened_->at(endpoint)->near; }

void UcxGrants::OnPermit(Endpoint* target, uint64_t grant, bool refused) {
  const auto asked = target->permits.find(grant);
  if (asked == target->permits.end()) return;
  asked->second = Permit::kGiven;
  if (!refused) return;
  target->permits.erase(asked);
  target->withdrawn[grant] = false;
}

void UcxGrants::OnWithdraw(Endpoint* target, uint64_t grant) {
  target->permits.erase(grant);
  target->withdrawn[grant] = true;
}

}  // namespace skein::engine
