#include "scheduler/orchestrator/registry/evidence.h"

#include "absl/strings/str_cat.h"

namespace skein::scheduler {
namespace {

template <class Key, class Value>
void EraseFrom(std::map<Key, std::set<Value>>* table, Key key, Value value) {
  const auto it = table->find(key);
  if (it == table->end()) return;
  it->second.erase(value);
  if (it->second.empty()) table->erase(it);
}

}  // namespace

void Evidence::Add(uint64_t router, Incarnation instance) {
  std::set<Incarnation>& heard = hears_[router];
  if (heard.size() >= kHeardMax) return;
  heard.insert(instance);
  heard_by_[instance].insert(router);
}

void Evidence::Remove(uint64_t router, Incarnation instance) {
  EraseFrom(&hears_, router, instance);
  EraseFrom(&heard_by_, instance, router);
}

void Evidence::Replace(uint64_t router, const std::vector<Incarnation>& heard) {
  ForgetRouter(router);
  for (const Incarnation instance : heard) Add(router, instance);
}

void Evidence::Change(uint64_t router, const std::vector<Incarnation>& heard,
                      const std::vector<Incarnation>& not_heard) {
  for (const Incarnation instance : heard) Add(router, instance);
  for (const Incarnation instance : not_heard) Remove(router, instance);
}

void Evidence::ForgetRouter(uint64_t router) {
  const auto forgotten = hears_.extract(router);
  if (forgotten.empty()) return;
  for (const Incarnation instance : forgotten.mapped()) EraseFrom(&heard_by_, instance, router);
}

int64_t Evidence::HeardBy(Incarnation instance) const {
  const auto it = heard_by_.find(instance);
  return it == heard_by_.end() ? 0 : static_cast<int64_t>(it->second.size());
}

absl::Status Evidence::CheckInvariants() const {
  size_t pairs = 0;
  for (const auto& [router, instances] : hears_) {
    pairs += instances.size();
    if (instances.empty()) {
      return absl::InternalError(
          absl::StrCat("Evidence: router ", router, " is listed but hears nothing"));
    }
    if (instances.size() > kHeardMax) {
      return absl::InternalError(
          absl::StrCat("Evidence: router ", router, " hears more instances than the limit"));
    }
    for (const Incarnation instance : instances) {
      const auto it = heard_by_.find(instance);
      if (it != heard_by_.end() && it->second.count(router) > 0) continue;
      return absl::InternalError(absl::StrCat("Evidence: process ", instance.value,
                                              " is heard by router ", router,
                                              " in one table but not in the other"));
    }
  }
  for (const auto& [instance, routers] : heard_by_) {
    pairs -= routers.size();
    if (!routers.empty()) continue;
    return absl::InternalError(
        absl::StrCat("Evidence: process ", instance.value, " is listed but no router hears it"));
  }
  if (pairs == 0) return absl::OkStatus();
  return absl::InternalError("Evidence: an instance is heard by a router that does not hear it");
}

}  // namespace skein::scheduler
