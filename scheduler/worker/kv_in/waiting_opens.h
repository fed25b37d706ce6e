// WaitingOpens: OpenTransfers that arrived early, before the announcement that names their writer
// or before the blocks of an older epoch are free. Each waits until its time. They are told apart
// by request, so that an event looks at those of its own request only. Part of TransferOpening.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"
#include "scheduler/base/timer_queue.h"
#include "scheduler/worker/kv_in/kv_in_events.h"

namespace skein::scheduler {

class WaitingOpens {
 public:
  void Hold(const OpenTransferCalled& call, TimeUs until_us) {
    const uint64_t number = next_++;
    held_[call.request.id].emplace(number, call);
    until_.Set({call.request.id, number}, until_us);
  }
  // Of a request, in the order of their coming, with the time until which each may wait.
  std::vector<std::pair<OpenTransferCalled, TimeUs>> TakeHeld(RequestId id) {
    std::vector<std::pair<OpenTransferCalled, TimeUs>> taken;
    const auto held = held_.extract(id);
    if (held.empty()) return taken;
    for (const auto& [number, call] : held.mapped()) {
      taken.emplace_back(call, until_.Of({id, number}));
      until_.Remove({id, number});
    }
    return taken;
  }
  // One whose time is over.
  std::optional<OpenTransferCalled> TakeOverdue(TimeUs now) {
    const auto due = until_.TakeDue(now);
    if (!due.has_value()) return std::nullopt;
    const auto held = held_.find(due->first);
    OpenTransferCalled call = std::move(held->second.extract(due->second).mapped());
    if (held->second.empty()) held_.erase(held);
    return call;
  }

  TimeUs NextDeadline() const { return until_.Next(); }
  absl::Status CheckInvariants() const {
    for (const auto& [id, calls] : held_) {
      for (const auto& [number, call] : calls) {
        if (until_.Of({id, number}) != kNever) continue;
        return absl::InternalError(absl::StrCat("WaitingOpens: an OpenTransfer of ", ToString(id),
                                                " waits without a time limit"));
      }
    }
    return absl::OkStatus();
  }

 private:
  std::map<RequestId, std::map<uint64_t, OpenTransferCalled>> held_;
  TimerQueue<std::pair<RequestId, uint64_t>> until_;
  uint64_t next_ = 1;
};

}  // namespace skein::scheduler
