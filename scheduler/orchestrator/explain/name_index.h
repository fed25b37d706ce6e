// NameIndex: finds requests by the names that clients and operators call them by. Part of
// ExplanationLog. Each operation costs O(log names).
//
// It stores hashes only, so the caller compares each request found with the name.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/container/btree_set.h"

namespace skein::scheduler {

class NameIndex {
 public:
  // `number`: the request, as its owner numbers it. `named` has ForEachName (Explanation).
  template <class Named>
  void Add(const Named& named, uint64_t number) {
    named.ForEachName([&](std::string_view name) { entries_.insert({HashOf(name), number}); });
  }
  template <class Named>
  void Remove(const Named& named, uint64_t number) {
    named.ForEachName([&](std::string_view name) { entries_.erase({HashOf(name), number}); });
  }
  // Calls visit(number) for those that may have the name, the largest number first, while it
  // returns true.
  template <class Visit>
  void ForEachLatest(std::string_view name, Visit visit) const {
    const uint64_t hash = HashOf(name);
    for (auto it = entries_.upper_bound({hash, UINT64_MAX}); it != entries_.begin();) {
      --it;
      if (it->hash != hash || !visit(it->number)) return;
    }
  }
  bool empty() const { return entries_.empty(); }

 private:
  struct Entry {
    uint64_t hash = 0;
    uint64_t number = 0;
    auto operator<=>(const Entry&) const = default;
  };
  static uint64_t HashOf(std::string_view name) {  // FNV-1a
    uint64_t hash = 0xcbf29ce484222325;
    for (const char byte : name) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
    return hash;
  }

  absl::btree_set<Entry> entries_;
};

}  // namespace skein::scheduler
