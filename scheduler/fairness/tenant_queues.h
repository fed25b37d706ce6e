// TenantQueues: the prompts that wait or are computed at one prefill instance, by tenant; and from
// that how many tokens the instance computes before a further prompt of a tenant is computed, if it
// serves tenants fairly (fair_order.h). Where one tenant has filled all queues, the plain sum would
// say nothing about where the others' requests wait least.
//
// The estimate is that of fair queueing: while the tenant's own tokens are computed, those in front
// and the prompt itself, each other tenant gets as many at most. Weights are taken as equal. With
// one tenant it is the sum of what is there.
//
// Not thread-safe. A call costs O(tenants here) at most.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace skein::scheduler {

class TenantQueues {
 public:
  void Add(std::string_view tenant, int64_t tokens) {
    const auto it = tokens_.find(tenant);
    if (it != tokens_.end()) {
      it->second += tokens;
    } else if (tokens > 0) {
      tokens_.emplace(std::string(tenant), tokens);
    }
  }
  // REQUIRES: they were added.
  void Remove(std::string_view tenant, int64_t tokens) {
    const auto it = tokens_.find(tenant);
    if (it == tokens_.end()) return;
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
    int64_t sum = own;
    for (const auto& [name, tokens] : tokens_) {
      if (name != tenant) sum += std::min(tokens, own + prompt_tokens);
    }
    return sum;
  }
  bool operator==(const TenantQueues&) const = default;

 private:
  std::map<std::string, int64_t, std::less<>> tokens_;  // above 0
};

}  // namespace skein::scheduler
