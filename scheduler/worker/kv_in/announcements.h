// Announcements: announced requests without blocks, each until its time is over, which of them
// share the prompt of another one, and which a bound group is to compute. Part of DecodeOrders.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/request.h"
#include "scheduler/base/time.h"
#include "scheduler/base/timer_queue.h"

namespace skein::scheduler {

class Announcements {
 public:
  struct Announced {
    SpecPtr spec;
    Epoch epoch;
    absl::Status checked;           // not OK: the answer to its OpenTransfers
    std::set<Incarnation> writers;  // may be granted the blocks
    std::optional<RequestId> prompt_of;
    uint64_t formation = 0;                                             // as AnnounceOf's
    bool suspect = false;                                               // likewise
    bool ByGroup() const { return formation != 0 && writers.empty(); }  // which computes it
  };

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
    if (request.formation != 0) announced.formation = request.formation;
    announced.suspect = announced.suspect || request.suspect;
    const auto listed = std::find(for_groups_.begin(), for_groups_.end(), request.spec->id);
    if (!announced.ByGroup() && listed != for_groups_.end()) for_groups_.erase(listed);
    if (announced.ByGroup() && listed == for_groups_.end()) for_groups_.push_back(request.spec->id);
    ends_.Set(request.spec->id, end_us);
  }
  // REQUIRES: Find(id).
  Announced Take(RequestId id) {
    ends_.Remove(id);
    Unlink(id, announced_.at(id));
    std::erase(for_groups_, id);
    return std::move(announced_.extract(id).mapped());
  }
  // The announced requests that share this one's prompt.
  std::set<RequestId> SharersOf(RequestId id) const {
    const auto it = sharers_.find(id);
    return it == sharers_.end() ? std::set<RequestId>() : it->second;
  }
  // Those that a bound group is to compute, in the order in which they came.
  const std::vector<RequestId>& for_groups() const { return for_groups_; }
  std::optional<RequestId> TakeOver(TimeUs now) { return ends_.TakeDue(now); }
  const std::map<RequestId, Announced>& all() const { return announced_; }

  TimeUs NextDeadline() const { return ends_.Next(); }
  absl::Status CheckInvariants() const {
    for (const auto& [id, announced] : announced_) {
      if (ends_.Of(id) == kNever) {
        return absl::InternalError(
            absl::StrCat("Announcements: ", ToString(id), " is announced without a time limit"));
      }
      if (announced.prompt_of.has_value() && SharersOf(*announced.prompt_of).count(id) == 0) {
        return absl::InternalError(
            absl::StrCat("Announcements: ", ToString(id), " is not listed as sharing its prompt"));
      }
      if (announced.ByGroup() != (std::count(for_groups_.begin(), for_groups_.end(), id) == 1)) {
        return absl::InternalError(
            absl::StrCat("Announcements: ", ToString(id), " is listed wrongly for a bound group"));
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
  std::vector<RequestId> for_groups_;
  TimerQueue<RequestId> ends_;
};

}  // namespace skein::scheduler
