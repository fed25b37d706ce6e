// TimerQueue: one due time per key of a core (a request, a member). It does not know what is due;
// the owner reads the key and sets its next time. Setting and taking a time are O(log n) in the
// number of keys, so no event walks over all of them.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "scheduler/base/time.h"

namespace skein::scheduler {

template <class Key>
class TimerQueue {
 public:
  // Replaces the key's time; kNever: not due.
  void Set(const Key& key, TimeUs at) {
    if (at == kNever) return Remove(key);
    const auto [it, is_new] = at_.try_emplace(key, at);
    if (!is_new) {
      if (it->second == at) return;
      order_.erase({it->second, key});
      it->second = at;
    }
    order_.insert({at, key});
  }
  void Remove(const Key& key) {
    const auto it = at_.find(key);
    if (it == at_.end()) return;
    order_.erase({it->second, key});
    at_.erase(it);
  }
  // Takes the key that is due first; among equals the smallest. Empty: none is due.
  std::optional<Key> TakeDue(TimeUs now) {
    if (order_.empty() || order_.begin()->first > now) return std::nullopt;
    const Key key = order_.begin()->second;
    order_.erase(order_.begin());
    at_.erase(key);
    return key;
  }
  TimeUs Next() const { return order_.empty() ? kNever : order_.begin()->first; }
  size_t size() const { return at_.size(); }
  TimeUs Of(const Key& key) const {
    const auto it = at_.find(key);
    return it == at_.end() ? kNever : it->second;
  }

 private:
  absl::btree_map<Key, TimeUs> at_;
  absl::btree_set<std::pair<TimeUs, Key>> order_;
};

}  // namespace skein::scheduler
