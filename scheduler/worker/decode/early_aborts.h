// EarlyAborts: aborts that came before the announcement of their request. Announcements and aborts
// arrive on different connections. Only a writer that the plan names may end a request, so such an
// abort ends nothing by itself; it takes effect when an announcement names its writer. Part of
// DecodeOrders.
//
// Keeps the latest kMax. One that is forgotten costs a lease: the writer does not renew it.
//
// Invariants (CheckInvariants): both tables have the same aborts, and at most kMax.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"

namespace skein::scheduler {

class EarlyAborts {
 public:
  static constexpr size_t kMax = 1024;

  void Add(const AbortRequest& abort) {
    const Key key{abort.id, abort.epoch, abort.incarnation};
    if (!aborts_.emplace(key, abort).second) return;
    oldest_first_.push_back(key);
    if (oldest_first_.size() <= kMax) return;
    aborts_.erase(oldest_first_.front());
    oldest_first_.pop_front();
  }
  bool Has(RequestId id, Epoch epoch, Incarnation writer) const {
    return aborts_.count({id, epoch, writer}) > 0;
  }
  std::optional<AbortRequest> Take(RequestId id, Epoch epoch, Incarnation writer) {
    auto taken = aborts_.extract(Key{id, epoch, writer});
    if (taken.empty()) return std::nullopt;
    std::erase(oldest_first_, taken.key());
    return std::move(taken.mapped());
  }
  size_t size() const { return aborts_.size(); }
  absl::Status CheckInvariants() const {
    const size_t listed = oldest_first_.size();
    if (aborts_.size() == listed && listed <= kMax) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("EarlyAborts: ", aborts_.size(), " aborts, ", listed,
                                            " by age, at most ", kMax));
  }

 private:
  using Key = std::tuple<RequestId, Epoch, Incarnation>;
  std::map<Key, AbortRequest> aborts_;
  std::deque<Key> oldest_first_;  // those of aborts_
};

}  // namespace skein::scheduler
