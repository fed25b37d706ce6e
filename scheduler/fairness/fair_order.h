// FairOrder: whose request is next, where requests of several tenants wait for one another. The
// queues of routers, orchestrators and workers all use it, each with a unit of its own for what is
// handed out: tokens of prompts, or of prompts and answers.
//
// Those of a higher priority go first. Within a priority each tenant has a counter of the tokens
// that it was given, divided by its weight, and the tenant with the least one is next. This is the
// Virtual Token Counter of "Fairness in Serving Large Language Models" (OSDI 2024, arXiv
// 2401.00588), algorithm 2. The virtual time V is the greatest value that the least counter of
// those that wait has had. A tenant that begins to wait is lifted to V - K, so that of the time in
// which it asked for nothing it keeps no more credit than K, the *credit* (0 in the paper). With it
// a tenant that asks for less than its share does not only get that share while it asks, it is
// served at once, so that its latency does not depend on what the others ask for. What is handed
// out while nobody waits is not counted: it is taken from nobody.
//
// The bound (theorem 4.4 of the paper, with U the most tokens charged at once; both by weight).
// Counters of tenants that wait are between V - K and V + U. So what two tenants are given that
// wait all through an interval, of any length, differs by 2 (U + K) at most. Where a queue charges
// what it hands out later than it hands it out, U grows by what is not charged yet.
//
// Work-conserving: whoever waits is served if there is no other, at once and to no limit. Of one
// tenant the keys are served in their order, so with a single tenant this is the queue of its keys.
//
// Goals. A request may have a latest start, by which it has to be served to reach its goal. Within
// a tenant those that can still reach it go first, the one with the least slack before the others.
// One that cannot any more stands in the order of keys again, so it pushes out none that can. Every
// kGoalTurns + 1st turn of a tenant goes to its first key. So a request with k keys of its tenant
// in front of it is served after (kGoalTurns + 1)(k + 1) turns of its tenant at most: none starves.
//
// Not thread-safe. A call costs O(log requests), Walk besides as much for each request visited, and
// once for each tenant that waits. Tenants are forgotten when they wait for nothing and owe
// nothing; of those that owe, kIdleMax are remembered. Of the priorities at which nobody waits, the
// kIdleLevels that emptied last are remembered.
//
// Invariants (CheckInvariants): a tenant waits exactly if it has keys; the counter of one that does
// not is above the least of those that do; each goal is of a key.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "scheduler/base/time.h"

namespace skein::scheduler {

// Whose request it is. The name is read during the call only.
struct FairOwner {
  std::string_view tenant;
  int64_t weight = 1;  // at least 1
  int32_t priority = 0;
};

// What a token of an answer counts, beside one of a prompt: as in the paper, and about what
// services ask for one.
inline constexpr int64_t kAnswerTokenCost = 2;

template <class Spec>  // RequestSpec or RequestHead
FairOwner OwnerOf(const Spec& spec) {
  return {spec.tenant, spec.tenant_weight, spec.priority};
}

// K in most queues: a tenant that asks for less than its share has prompts of this many tokens
// served before those of tenants that have had more.
inline constexpr int64_t kFairCreditTokens = 65536;

// The tenants of one priority. Key: ordered, and unique within a tenant.
template <class Key>
class FairLevel {
 public:
  static constexpr int64_t kUnit = 4096;  // of a counter, for a token at weight 1
  static constexpr size_t kIdleMax = 1024;
  static constexpr int kGoalTurns = 3;

  explicit FairLevel(int64_t credit_tokens) : credit_(credit_tokens * kUnit) {}
  FairLevel(FairLevel&&) = default;  // no copies: the orders refer to the names in the map
  FairLevel& operator=(FairLevel&&) = default;

  // REQUIRES: the tenant has no such key.
  void Add(std::string_view name, int64_t weight, const Key& key, TimeUs latest_start_us) {
    const auto it = Find(name);
    Tenant& tenant = it->second;
    if (tenant.keys.empty()) {
      idle_.erase({tenant.counter, it->first});
      tenant.counter = std::max(tenant.counter, Lift());
      waiting_.emplace(tenant.counter, it->first);
    }
    tenant.weight = std::max<int64_t>(1, weight);
    tenant.keys.emplace(key, latest_start_us);
    if (latest_start_us != kNever) tenant.goals.emplace(latest_start_us, key);
    ++size_;
    Advance();
  }

  // False: it has none.
  bool Remove(std::string_view name, const Key& key) {
    const auto it = tenants_.find(name);
    if (it == tenants_.end()) return false;
    Tenant& tenant = it->second;
    const auto found = tenant.keys.find(key);
    if (found == tenant.keys.end()) return false;
    tenant.goals.erase({found->second, key});
    tenant.keys.erase(found);
    --size_;
    if (tenant.keys.empty()) {
      waiting_.erase({tenant.counter, it->first});
      if (waiting_.empty()) time_ = std::max(time_, tenant.counter);
      idle_.emplace(tenant.counter, it->first);
      tenant.goal_turns = 0;
    }
    Advance();
    return true;
  }

  // It is counted for the tenant whether it waits or not, as long as any does.
  void Charge(std::string_view name, int64_t weight, int64_t tokens) {
    if (waiting_.empty() || tokens <= 0) return;
    const auto it = Find(name);
    Tenant& tenant = it->second;
    auto& in = tenant.keys.empty() ? idle_ : waiting_;
    const int64_t from = std::max(tenant.counter, Lift());
    in.erase({tenant.counter, it->first});
    tenant.counter = from + Cost(tokens, weight);
    in.emplace(tenant.counter, it->first);
    Advance();
  }

  // The key of this tenant had its turn.
  void NoteTurn(std::string_view name, const Key& key) {
    const auto it = tenants_.find(name);
    if (it == tenants_.end() || it->second.keys.empty()) return;
    const bool first = it->second.keys.begin()->first == key;
    it->second.goal_turns = first ? 0 : it->second.goal_turns + 1;
  }

  // Of the tenant with the least counter, of those that may(name). Goals that `now` is too late for
  // are given up.
  template <class May>
  std::optional<Key> First(TimeUs now, May& may) {
    for (const auto& [counter, name] : waiting_) {
      if (may(name)) return FirstOf(tenants_.find(name)->second, now);
    }
    return std::nullopt;
  }

  // The first key that pick(name) gives, asked of the tenants that wait, the least counter first.
  template <class Pick>
  std::optional<Key> Choose(Pick& pick) const {
    for (const auto& [counter, name] : waiting_) {
      if (std::optional<Key> key = pick(name); key.has_value()) return key;
    }
    return std::nullopt;
  }

  // Visits keys as if each one visited were served: visit(key, ahead) gives the tokens that it
  // would be charged; kStop: no further one; kNextTenant: none of this tenant. `ahead`: how many
  // tokens (at weight 1) its tenant has had by then beyond those of the tenant that is visited
  // first. False: it was stopped. Goals are not looked at.
  static constexpr int64_t kStop = -1;
  static constexpr int64_t kNextTenant = -2;
  template <class Visit>
  bool Walk(Visit& visit) const {
    if (waiting_.size() == 1) {
      for (const auto& [key, latest] : tenants_.find(waiting_.begin()->second)->second.keys) {
        const int64_t tokens = visit(key, /*ahead=*/0);
        if (tokens == kStop) return false;
        if (tokens == kNextTenant) break;
      }
      return true;
    }
    const int64_t least = waiting_.empty() ? 0 : waiting_.begin()->first;
    using Next = std::pair<std::pair<int64_t, std::string_view>, size_t>;
    std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
    std::vector<std::pair<typename Keys::const_iterator, const Tenant*>> at;
    for (const auto& place : waiting_) {
      const Tenant& tenant = tenants_.find(place.second)->second;
      next.emplace(place, at.size());
      at.emplace_back(tenant.keys.begin(), &tenant);
    }
    while (!next.empty()) {
      auto [place, index] = next.top();
      next.pop();
      auto& [key, tenant] = at[index];
      const int64_t tokens = visit(key->first, (place.first - least) / kUnit);
      if (tokens == kStop) return false;
      if (tokens == kNextTenant || ++key == tenant->keys.end()) continue;
      place.first += tokens > 0 ? Cost(tokens, tenant->weight) : 0;
      next.emplace(place, index);
    }
    return true;
  }

  // How many more tokens (at weight 1) the tenant that is next has been given than this one would
  // count as having, if it began to wait now. 0: no tenant waits.
  int64_t LeadOver(std::string_view name) const {
    if (waiting_.empty()) return 0;
    const auto it = tenants_.find(name);
    const int64_t counter = it == tenants_.end() ? Lift() : std::max(it->second.counter, Lift());
    return (waiting_.begin()->first - counter) / kUnit;
  }

  bool Has(std::string_view name, const Key& key) const {
    const auto it = tenants_.find(name);
    return it != tenants_.end() && it->second.keys.count(key) > 0;
  }
  size_t WaitingOf(std::string_view name) const {
    const auto it = tenants_.find(name);
    return it == tenants_.end() ? 0 : it->second.keys.size();
  }
  size_t size() const { return size_; }
  size_t tenants() const { return waiting_.size(); }  // that wait
  bool IsOver() const { return waiting_.empty() && idle_.empty(); }

  absl::Status CheckInvariants() const {
    size_t keys = 0;
    for (const auto& [name, tenant] : tenants_) {
      const std::pair<int64_t, std::string_view> place{tenant.counter, name};
      const bool waits = !tenant.keys.empty();
      keys += tenant.keys.size();
      if (waiting_.count(place) != (waits ? 1 : 0) || idle_.count(place) != (waits ? 0 : 1)) {
        return Violated(name, "waits without a key, or has one and does not wait");
      }
      if (waits && tenant.counter < Lift()) return Violated(name, "has more than the credit");
      if (!waits && tenant.counter <= Lift()) return Violated(name, "has all credit, and is kept");
      for (const auto& [latest, key] : tenant.goals) {
        const auto found = tenant.keys.find(key);
        if (found == tenant.keys.end() || found->second != latest) {
          return Violated(name, "has the goal of a key that it has not");
        }
      }
    }
    if (keys == size_ && waiting_.size() + idle_.size() == tenants_.size()) return absl::OkStatus();
    return absl::InternalError("FairOrder: keys or tenants are miscounted");
  }

 private:
  using Keys = std::map<Key, TimeUs>;  // with the latest start; kNever: it has none
  struct Tenant {
    int64_t counter = 0;
    int64_t weight = 1;
    Keys keys;
    std::set<std::pair<TimeUs, Key>> goals;  // of some of the keys
    int goal_turns = 0;                      // by goals, since the last of the first key
  };
  using Tenants = std::map<std::string, Tenant, std::less<>>;
  using Order = std::set<std::pair<int64_t, std::string_view>>;  // by counter; names of tenants_

  static int64_t Cost(int64_t tokens, int64_t weight) {
    return std::max<int64_t>(1, tokens * kUnit / std::max<int64_t>(1, weight));
  }
  static absl::Status Violated(std::string_view name, const char* what) {
    return absl::InternalError(absl::StrCat("FairOrder: tenant '", std::string(name), "' ", what));
  }

  static Key FirstOf(Tenant& tenant, TimeUs now) {
    while (!tenant.goals.empty() && tenant.goals.begin()->first < now) {
      tenant.keys.at(tenant.goals.begin()->second) = kNever;
      tenant.goals.erase(tenant.goals.begin());
    }
    if (!tenant.goals.empty() && tenant.goal_turns < kGoalTurns) {
      return tenant.goals.begin()->second;
    }
    return tenant.keys.begin()->first;
  }

  int64_t Lift() const { return time_ - credit_; }

  typename Tenants::iterator Find(std::string_view name) {
    const auto it = tenants_.find(name);
    if (it != tenants_.end()) return it;
    return tenants_.emplace(std::string(name), Tenant{.counter = Lift()}).first;
  }

  // Virtual time, and forgets those that would be lifted anyway; and those that were given least,
  // if they are too many.
  void Advance() {
    if (!waiting_.empty()) time_ = std::max(time_, waiting_.begin()->first);
    while (!idle_.empty() && (idle_.begin()->first <= Lift() || idle_.size() > kIdleMax)) {
      const auto it = tenants_.find(idle_.begin()->second);
      idle_.erase(idle_.begin());
      tenants_.erase(it);
    }
  }

  int64_t credit_;  // K
  Tenants tenants_;
  Order waiting_;     // those with keys
  Order idle_;        // the others
  int64_t time_ = 0;  // V
  size_t size_ = 0;
};

// The levels, the highest priority first.
template <class Key>
class FairOrder {
 public:
  using Level = FairLevel<Key>;
  explicit FairOrder(int64_t credit_tokens = kFairCreditTokens) : credit_tokens_(credit_tokens) {}
  static constexpr int64_t kStop = Level::kStop;
  static constexpr int64_t kNextTenant = Level::kNextTenant;
  static constexpr size_t kIdleLevels = 8;

  // `latest_start_us`: served later, it misses its goal; kNever: it has none.
  // REQUIRES: the tenant has no such key of this priority.
  void Add(const FairOwner& owner, const Key& key, TimeUs latest_start_us = kNever) {
    const auto level = levels_.try_emplace(owner.priority, credit_tokens_).first;
    if (level->second.size() == 0) std::erase(idle_levels_, owner.priority);
    level->second.Add(owner.tenant, owner.weight, key, latest_start_us);
  }
  // It leaves unserved. False: it was not here.
  bool Remove(const FairOwner& owner, const Key& key) {
    const auto level = levels_.find(owner.priority);
    if (level == levels_.end() || !level->second.Remove(owner.tenant, key)) return false;
    if (level->second.IsOver()) {
      levels_.erase(level);
    } else if (level->second.size() == 0) {
      idle_levels_.push_back(owner.priority);
      if (idle_levels_.size() > kIdleLevels) ForgetFirstLevel();
    }
    return true;
  }
  // It leaves, and its tenant is charged so many tokens. False: it was not here.
  bool Serve(const FairOwner& owner, const Key& key, int64_t tokens) {
    const auto level = levels_.find(owner.priority);
    if (level == levels_.end() || !level->second.Has(owner.tenant, key)) return false;
    level->second.NoteTurn(owner.tenant, key);
    level->second.Charge(owner.tenant, owner.weight, tokens);
    return Remove(owner, key);
  }
  // Tokens that the tenant is given besides, or later.
  void Charge(const FairOwner& owner, int64_t tokens) {
    const auto level = levels_.find(owner.priority);
    if (level != levels_.end()) level->second.Charge(owner.tenant, owner.weight, tokens);
  }

  // The next to be served; empty: none waits.
  std::optional<Key> First(TimeUs now = 0) {
    return First(now, [](std::string_view) { return true; });
  }
  // The next of those whose tenant may be served now: may(name). Costs one call for each that may
  // not.
  template <class May>
  std::optional<Key> First(TimeUs now, May may) {
    for (auto& [priority, level] : levels_) {
      if (std::optional<Key> first = level.First(now, may); first.has_value()) return first;
    }
    return std::nullopt;
  }
  // The first key that pick(priority, name) gives, asked of each tenant that waits: the highest
  // priority first, then the least counter. Costs one call for each that gives none.
  template <class Pick>
  std::optional<Key> Choose(Pick pick) const {
    for (const auto& [priority, level] : levels_) {
      const auto here = [&pick, at = priority](std::string_view name) { return pick(at, name); };
      if (std::optional<Key> key = level.Choose(here); key.has_value()) return key;
    }
    return std::nullopt;
  }
  // See FairLevel. kNextTenant passes over the tenant's other keys of this priority.
  template <class Visit>
  void Walk(Visit visit) const {
    for (const auto& [priority, level] : levels_) {
      if (!level.Walk(visit)) return;
    }
  }

  bool Has(const FairOwner& owner, const Key& key) const {
    const auto level = levels_.find(owner.priority);
    return level != levels_.end() && level->second.Has(owner.tenant, key);
  }
  // See FairLevel.
  int64_t LeadOver(const FairOwner& owner) const {
    const auto level = levels_.find(owner.priority);
    return level == levels_.end() ? 0 : level->second.LeadOver(owner.tenant);
  }
  // So many tenants wait at this priority; 0: none does.
  size_t TenantsAt(int32_t priority) const {
    const auto level = levels_.find(priority);
    return level == levels_.end() ? 0 : level->second.tenants();
  }
  size_t WaitingOf(const FairOwner& owner) const {
    const auto level = levels_.find(owner.priority);
    return level == levels_.end() ? 0 : level->second.WaitingOf(owner.tenant);
  }
  size_t size() const {
    size_t size = 0;
    for (const auto& [priority, level] : levels_) size += level.size();
    return size;
  }
  bool empty() const { return size() == 0; }
  size_t levels() const { return levels_.size(); }  // that are remembered

  absl::Status CheckInvariants() const {
    for (const auto& [priority, level] : levels_) {
      if (absl::Status status = level.CheckInvariants(); !status.ok()) return status;
      if (level.IsOver()) return absl::InternalError("FairOrder: an empty priority was kept");
      const auto idle = std::count(idle_levels_.begin(), idle_levels_.end(), priority);
      if (idle != (level.size() == 0 ? 1 : 0)) {
        return absl::InternalError("FairOrder: an idle priority would be kept for ever");
      }
    }
    return absl::OkStatus();
  }

 private:
  void ForgetFirstLevel() {
    levels_.erase(idle_levels_.front());
    idle_levels_.erase(idle_levels_.begin());
  }

  int64_t credit_tokens_;
  std::map<int32_t, Level, std::greater<>> levels_;
  std::vector<int32_t> idle_levels_;  // at which nobody waits, and some owe; by when they emptied
};

}  // namespace skein::scheduler
