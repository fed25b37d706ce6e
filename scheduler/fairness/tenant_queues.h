// TenantQueues: the prompts that wait or are computed at one prefill instance, by tenant; and from
// that how many tokens the instance computes before a further prompt of a tenant is computed, if it
// serves tenants fairly (fair_order.h). Where one tenant has filled all queues, the plain sum would
// say nothing about where the others' requests wait least.
//
// The estimate is that of fair queueing: while the tenant's own tokens are computed, those in front
// and the prompt itself, each other tenant gets as many at most. Weights are taken as equal. With
// one tenant it is the sum of what is there.
//
// Tenants are counted in classes: those that have as many tokens, within a factor of two. So a
// request's choice of an instance costs the same however many tenants there are. In one class, that
// of the limit, some may have more than it and others less; of these the estimate is at most twice
// what it would be tenant by tenant.
//
// Not thread-safe. TokensBefore costs O(classes), 63 at most; the others O(log tenants).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace skein::scheduler {

class TenantQueues {
 public:
  void Add(std::string_view tenant, int64_t tokens) {
    if (tokens <= 0) return;
    const auto it = tokens_.try_emplace(std::string(tenant)).first;
    Set(it->second, it->second + tokens);
    it->second += tokens;
  }
  // REQUIRES: they were added.
  void Remove(std::string_view tenant, int64_t tokens) {
    const auto it = tokens_.find(tenant);
    if (it == tokens_.end()) return;
    Set(it->second, it->second - tokens);
    it->second -= tokens;
    if (it->second <= 0) tokens_.erase(it);
  }
  int64_t Of(std::string_view tenant) const {
    const auto it = tokens_.find(tenant);
    return it == tokens_.end() ? 0 : it->second;
  }
  // Before a prompt of so many tokens.
  int64_t TokensBefore(std::string_view tenant, int64_t prompt_tokens) const {
    const int64_t own = Of(tenant);
    const int64_t limit = own + prompt_tokens;  // of each other tenant
    int64_t sum = own;
    for (const auto& [width, of_class] : classes_) {
      const bool has_own = own > 0 && width == WidthOf(own);
      const int64_t tenants = of_class.tenants - (has_own ? 1 : 0);
      const int64_t tokens = of_class.tokens - (has_own ? own : 0);
      sum += std::min(tokens, tenants * limit);
    }
    return sum;
  }
  bool operator==(const TenantQueues&) const = default;

 private:
  struct Class {
    int64_t tenants = 0;
    int64_t tokens = 0;  // of all of them
    bool operator==(const Class&) const = default;
  };

  static int WidthOf(int64_t tokens) { return std::bit_width(static_cast<uint64_t>(tokens)); }
  // A tenant has so many tokens now, and had `before`.
  void Set(int64_t before, int64_t now) {
    Count(before, -1);
    Count(now, 1);
  }
  void Count(int64_t tokens, int64_t times) {
    if (tokens <= 0) return;
    const auto it = classes_.try_emplace(WidthOf(tokens)).first;
    it->second.tenants += times;
    it->second.tokens += times * tokens;
    if (it->second.tenants == 0) classes_.erase(it);
  }

  std::map<int, Class> classes_;  // by the bits of the number of tokens; none is empty
  std::map<std::string, int64_t, std::less<>> tokens_;  // above 0
};

}  // namespace skein::scheduler
