// RouterCount: how many routers serve the cluster, by what orchestrators tell with their answers.
//
// More are believed at once. Fewer are believed when they have been told for a lease: an
// orchestrator that has just taken over hears of the routers one after another, and each that lives
// is there within a lease.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "scheduler/base/time.h"

namespace skein::scheduler {

// Pure; the caller says when it is. One thread at a time.
class RouterCount {
 public:
  explicit RouterCount(size_t cells) : told_(cells) {}

  // At least 1.
  int64_t now() const { return now_; }

  // The orchestrator of `cell` welcomes this router, for leases of this length.
  void Welcomed(size_t cell, int64_t routers, TimeUs lease_us, TimeUs now) {
    lease_us_ = std::max(lease_us_, lease_us);
    Told(cell, routers, now);
  }
  // It tells how many it knows, this one included.
  void Told(size_t cell, int64_t routers, TimeUs now) {
    told_[cell] = routers;
    const int64_t most = *std::max_element(told_.begin(), told_.end());
    if (most >= now_) {
      now_ = most;
      fewer_since_ = kNever;
    } else if (fewer_since_ == kNever) {
      fewer_since_ = now;
    } else if (now - fewer_since_ >= lease_us_) {
      now_ = std::max<int64_t>(1, most);
      fewer_since_ = kNever;
    }
  }
  // The cell is out of reach: the others know better. What the only cell has told stays.
  void Lost(size_t cell) {
    const bool known_elsewhere = std::any_of(told_.begin(), told_.end(), [&](const int64_t& one) {
      return &one != &told_[cell] && one > 0;
    });
    if (known_elsewhere) told_[cell] = 0;
  }

 private:
  std::vector<int64_t> told_;  // by cell; 0: nothing, or it is out of reach
  int64_t now_ = 1;
  TimeUs lease_us_ = 0;
  TimeUs fewer_since_ = kNever;  // kNever: the latest was not fewer
};

}  // namespace skein::scheduler
