// Announcements: announced requests without blocks, and OpenTransfers that arrived early: before
// the announcement that names their writer, or before the blocks of an older epoch are free. Part
// of DecodeCore.
//
// An announcement ends at its time; an OpenTransfer waits until its time. Both are told apart by
// request, so that an event looks at those of its own request only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/request.h"
#include "scheduler/base/time.h"
#include "scheduler/base/timer_queue.h"
#include "scheduler/worker/kv_in/kv_in_events.h"

namespace skein::scheduler {

class Announcements {
 public:
  struct Announced {
    SpecPtr spec;
    Epoch epoch;
    absl::Status checked;           // not OK: the answer to its OpenTransfers
    std::set<Incarnation> writers;  // may be granted the blocks
    std::optional<RequestId> prompt_of;
  };

  // ---- announced requests ----
  const Announced* Find(RequestId id) const {
    const auto it = announced_.find(id);
    return it == announced_.end() ? nullptr : &it->second;
  }
  bool Has(RequestId id, Epoch epoch) const {
    const Announced* announced = Find(id);
    return announced != nullptr && announced->epoch == epoch;
  }
  // New, or further writers of the same epoch.
  void Add(const AnnounceRequest& request, const absl::Status& checked, TimeUs end_us) {
    Announced& announced = announced_[request.spec->id];
    announced.spec = request.spec;
    announced.epoch = request.epoch;
    announced.checked = checked;
    announced.writers.insert(request.writers.begin(), request.writers.end());
    Unlink(request.spec->id, announced);
    announced.prompt_of = request.prompt_of;
    if (announced.prompt_of.has_value()) sharers_[*announced.prompt_of].insert(request.spec->id);
    ends_.Set(request.spec->id, end_us);
  }
  // REQUIRES: Find(id).
  Announced Take(RequestId id) {
    ends_.Remove(id);
    Unlink(id, announced_.at(id));
    return std::move(announced_.extract(id).mapped());
  }
  // The announced requests that share this one's prompt.
  std::set<RequestId> SharersOf(RequestId id) const {
    const auto it = sharers_.find(id);
    return it == sharers_.end() ? std::set<RequestId>() : it->second;
  }
  std::optional<RequestId> TakeOver(TimeUs now) { return ends_.TakeDue(now); }
  const std::map<RequestId, Announced>& all() const { return announced_; }

  // ---- OpenTransfers that wait ----
  void Hold(const OpenTransferCalled& grant, TimeUs until_us) {
    const uint64_t number = next_held_++;
    held_[grant.request.id].emplace(number, grant);
    until_.Set({grant.request.id, number}, until_us);
  }
  // Of a request, in the order of their coming, with the time until which each may wait.
  std::vector<std::pair<OpenTransferCalled, TimeUs>> TakeHeld(RequestId id) {
    std::vector<std::pair<OpenTransferCalled, TimeUs>> taken;
    const auto held = held_.extract(id);
    if (held.empty()) return taken;
    for (const auto& [number, grant] : held.mapped()) {
      taken.emplace_back(grant, until_.Of({id, number}));
      until_.Remove({id, number});
    }
    return taken;
  }
  // One whose time is over.
  std::optional<OpenTransferCalled> TakeOverdue(TimeUs now) {
    const auto due = until_.TakeDue(now);
    if (!due.has_value()) return std::nullopt;
    const auto held = held_.find(due->first);
    OpenTransferCalled grant = std::move(held->second.extract(due->second).mapped());
    if (held->second.empty()) held_.erase(held);
    return grant;
  }

  TimeUs NextDeadline() const { return std::min(ends_.Next(), until_.Next()); }
  absl::Status CheckInvariants() const {
    for (const auto& [id, announced] : announced_) {
      if (ends_.Of(id) == kNever) {
        return absl::InternalError(
            absl::StrCat("Announcements: ", ToString(id), " is announced without an end"));
      }
      if (announced.prompt_of.has_value() && SharersOf(*announced.prompt_of).count(id) == 0) {
        return absl::InternalError(
            absl::StrCat("Announcements: ", ToString(id), " is not among the sharers"));
      }
    }
    for (const auto& [id, grants] : held_) {
      for (const auto& [number, grant] : grants) {
        if (until_.Of({id, number}) != kNever) continue;
        return absl::InternalError(absl::StrCat("Announcements: an OpenTransfer of ", ToString(id),
                                                " waits without a time limit"));
      }
    }
    return absl::OkStatus();
  }

 private:
  void Unlink(RequestId id, const Announced& announced) {
    if (!announced.prompt_of.has_value()) return;
    const auto it = sharers_.find(*announced.prompt_of);
    it->second.erase(id);
    if (it->second.empty()) sharers_.erase(it);
  }

  std::map<RequestId, Announced> announced_;
  std::map<RequestId, std::set<RequestId>> sharers_;  // of announced ones, by prompt_of
  TimerQueue<RequestId> ends_;
  std::map<RequestId, std::map<uint64_t, OpenTransferCalled>> held_;
  TimerQueue<std::pair<RequestId, uint64_t>> until_;
  uint64_t next_held_ = 1;
};

}  // namespace skein::scheduler
