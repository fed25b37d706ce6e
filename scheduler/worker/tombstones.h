// Tombstones: epochs under which requests ended here, so that late messages (a Cancel that overtook
// its Assign, a repeated Commit) are recognised. Bounded; the oldest are dropped.
//
// Invariants (CheckInvariants): both tables have the same requests, and at most `capacity`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "scheduler/base/ids.h"

namespace skein::scheduler {

class Tombstones {
 public:
  explicit Tombstones(size_t capacity = 8192) : capacity_(capacity) {}

  // `committed`: its KV had been taken over when it ended.
  void Put(RequestId id, Epoch epoch, bool committed) {
    const auto [it, added] = stones_.try_emplace(id, Stone{epoch, committed});
    if (added) {
      order_.push_back(id);
      if (order_.size() > capacity_) {
        stones_.erase(order_.front());
        order_.pop_front();
      }
    } else if (epoch >= it->second.epoch) {
      const bool same = epoch == it->second.epoch;
      it->second = {epoch, committed || (same && it->second.committed)};
    }
  }

  // Was this epoch, or a newer one, ended here?
  bool Covers(RequestId id, Epoch epoch) const {
    const auto it = stones_.find(id);
    return it != stones_.end() && epoch <= it->second.epoch;
  }

  bool Committed(RequestId id, Epoch epoch) const {
    const auto it = stones_.find(id);
    return it != stones_.end() && epoch == it->second.epoch && it->second.committed;
  }

  absl::Status CheckInvariants() const {
    if (stones_.size() == order_.size() && stones_.size() <= capacity_) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("Tombstones: ", stones_.size(), " requests, ",
                                            order_.size(), " in order, at most ", capacity_));
  }

 private:
  struct Stone {
    Epoch epoch;
    bool committed = false;
  };

  size_t capacity_;
  std::map<RequestId, Stone> stones_;
  std::deque<RequestId> order_;
};

}  // namespace skein::scheduler
