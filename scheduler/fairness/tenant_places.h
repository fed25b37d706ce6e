// TenantPlaces: how many of a limited number of places each tenant holds, and may. Used by a router
// for its streams and for its queue, by an orchestrator for the requests of a model.
//
// A tenant is known while it holds a place, and for kKnownUs after it last asked for one. Its share
// of the places is by weight among those known. A tenant that is the only one known may hold all.
//
// Not thread-safe. A call costs O(log tenants). At most kIdleMax tenants are known that hold none.
//
// Invariants (CheckInvariants): the places and weights are added up; a tenant that holds none has a
// time from which it is not known.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "scheduler/base/time.h"

namespace skein::scheduler {

class TenantPlaces {
 public:
  static constexpr TimeUs kKnownUs = 60 * kSecondUs;
  static constexpr size_t kIdleMax = 1024;

  explicit TenantPlaces(int64_t places) : places_(places) {}
  TenantPlaces(const TenantPlaces&) = delete;  // the order refers to the names in the map
  TenantPlaces& operator=(const TenantPlaces&) = delete;

  void SetPlaces(int64_t places) { places_ = places; }  // more or fewer than are held

  // The tenant asks for a place, whether it gets one or not.
  void Ask(std::string_view tenant, int64_t weight, TimeUs now) {
    Expire(now);
    const auto it = Find(tenant);
    Tenant& asks = it->second;
    weights_ += std::max<int64_t>(1, weight) - asks.weight;
    asks.weight = std::max<int64_t>(1, weight);
    if (asks.held == 0) idle_.erase({asks.asked_us, it->first});
    asks.asked_us = now;
    if (asks.held == 0) idle_.emplace(now, it->first);
    if (idle_.size() > kIdleMax) ForgetFirst();
  }
  // Whether it may hold one more is for the caller to ask.
  void Take(std::string_view tenant) {
    const auto it = Find(tenant);
    if (it->second.held++ == 0) idle_.erase({it->second.asked_us, it->first});
    ++held_;
  }
  // REQUIRES: it holds one.
  void GiveBack(std::string_view tenant) {
    const auto it = tenants_.find(tenant);
    --held_;
    if (--it->second.held == 0) idle_.emplace(it->second.asked_us, it->first);
  }

  int64_t held() const { return held_; }
  size_t known() const { return tenants_.size(); }  // tenants
  int64_t HeldBy(std::string_view tenant) const {
    const auto it = tenants_.find(tenant);
    return it == tenants_.end() ? 0 : it->second.held;
  }
  // Of all places, at least one. REQUIRES: it has asked.
  int64_t ShareOf(std::string_view tenant) const {
    const auto it = tenants_.find(tenant);
    if (it == tenants_.end() || tenants_.size() == 1) return places_;
    const auto share = static_cast<double>(places_) * static_cast<double>(it->second.weight) /
                       static_cast<double>(weights_);
    return std::max<int64_t>(1, static_cast<int64_t>(share));
  }
  bool IsBelowShare(std::string_view tenant) const { return HeldBy(tenant) < ShareOf(tenant); }

  // There is one for the tenant, and it leaves an eighth of all places free if it has its share
  // already and others are known. So a tenant that is below its share need not wait until one that
  // is above gives a place back, unless it came when that one was alone.
  bool MayTake(std::string_view tenant) const {
    if (held_ >= places_) return false;
    return tenants_.size() == 1 || IsBelowShare(tenant) || held_ < places_ - places_ / 8;
  }
  // All are taken, and the tenant has its share. Others may have places beyond the number of all,
  // up to their shares, and up to twice that number together: so the tenant that has filled all of
  // them is the one that is refused.
  bool IsFullFor(std::string_view tenant) const {
    return held_ >= places_ && (held_ >= 2 * places_ || !IsBelowShare(tenant));
  }
  // Tenants that have asked longest ago are not known any more.
  void Expire(TimeUs now) {
    while (!idle_.empty() && idle_.begin()->first + kKnownUs < now) ForgetFirst();
  }

  absl::Status CheckInvariants() const {
    int64_t held = 0, weights = 0;
    size_t idle = 0;
    for (const auto& [name, tenant] : tenants_) {
      held += tenant.held;
      weights += tenant.weight;
      idle += tenant.held == 0 ? 1 : 0;
      if (tenant.held == 0 && idle_.count({tenant.asked_us, name}) == 0) {
        return absl::InternalError("TenantPlaces: a tenant without a place is known for ever");
      }
    }
    if (held == held_ && weights == weights_ && idle == idle_.size()) return absl::OkStatus();
    return absl::InternalError("TenantPlaces: places or weights are miscounted");
  }

 private:
  struct Tenant {
    int64_t weight = 1;
    int64_t held = 0;
    TimeUs asked_us = 0;  // last
  };
  using Tenants = std::map<std::string, Tenant, std::less<>>;

  Tenants::iterator Find(std::string_view name) {
    const auto it = tenants_.find(name);
    if (it != tenants_.end()) return it;
    const auto added = tenants_.emplace(std::string(name), Tenant{}).first;
    weights_ += added->second.weight;
    idle_.emplace(added->second.asked_us, added->first);
    return added;
  }
  void ForgetFirst() {
    const auto it = tenants_.find(idle_.begin()->second);
    idle_.erase(idle_.begin());
    weights_ -= it->second.weight;
    tenants_.erase(it);
  }

  int64_t places_;
  Tenants tenants_;
  std::set<std::pair<TimeUs, std::string_view>> idle_;  // hold none, by when they asked last
  int64_t weights_ = 0;
  int64_t held_ = 0;
};

}  // namespace skein::scheduler
