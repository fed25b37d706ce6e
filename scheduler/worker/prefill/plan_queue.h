// PlanQueue: the requests of a prefill-worker in plan-sequence order: those that wait for blocks,
// those in front (they have blocks, and compute or wait for decode blocks), and the SP plans that
// have blocks but no place yet. Part of PrefillRequests. Each call costs the logarithm of the
// number of requests.
//
// In front. A request that is computed stays in front until the decode side has granted blocks, so
// that computed prompts do not pile up here while there is no decode room. There may be `ahead` in
// front, and more as long as they are what the step in flight and the next one have room for: the
// engine does not wait for answers. Members of an SP plan that do not lead it are never in front.
//
// Invariants (CheckInvariants): the SP plans that wait are among those that wait, and not among the
// unplaced, which have blocks; the prompts' tokens of those in front are added up.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "scheduler/base/ids.h"
#include "scheduler/batch/batch_scheduler.h"

namespace skein::scheduler {

class PlanQueue {
 public:
  struct Place {
    PlanSequence sequence;
    RequestId id;
    bool sequence_parallel = false;
  };

  PlanQueue(int64_t ahead, const BatchLimits& step) : ahead_(ahead), step_(step) {}

  // ---- those that wait for blocks ----
  void Wait(const Place& place) {
    waiting_.emplace(place.sequence, place.id);
    if (place.sequence_parallel) sp_waiting_.emplace(place.sequence, place.id);
  }
  void StopWaiting(const Place& place) {
    waiting_.erase({place.sequence, place.id});
    sp_waiting_.erase({place.sequence, place.id});
  }
  std::optional<RequestId> First() const {
    if (waiting_.empty()) return std::nullopt;
    return waiting_.begin()->second;
  }
  // An SP plan before `sequence` waits for blocks.
  bool SpPlanWaitsBefore(PlanSequence sequence) const {
    return !sp_waiting_.empty() && sp_waiting_.begin()->first < sequence;
  }
  size_t waiting() const { return waiting_.size(); }

  // ---- SP plans with blocks and without a place ----
  void AddUnplaced(const Place& place) {
    if (place.sequence_parallel) unplaced_.emplace(place.sequence, place.id);
  }
  void RemoveUnplaced(const Place& place) { unplaced_.erase({place.sequence, place.id}); }
  // The youngest, if it is younger than `sequence`.
  std::optional<RequestId> YoungestUnplaced(PlanSequence sequence) const {
    if (unplaced_.empty() || unplaced_.rbegin()->first < sequence) return std::nullopt;
    return unplaced_.rbegin()->second;
  }

  // ---- in front ----
  bool MayEnterFront() const {
    const auto front = static_cast<int64_t>(front_.size());
    return front < ahead_ ||
           (front < 2 * step_.max_batch_sequences && front_tokens_ < 2 * step_.max_batch_tokens);
  }
  void EnterFront(RequestId id, int64_t prompt_tokens) {
    if (front_.emplace(id, prompt_tokens).second) front_tokens_ += prompt_tokens;
  }
  void LeaveFront(RequestId id) {
    const auto left = front_.extract(id);
    if (!left.empty()) front_tokens_ -= left.mapped();
  }
  bool InFront(RequestId id) const { return front_.count(id) > 0; }
  size_t front() const { return front_.size(); }

  absl::Status CheckInvariants() const {
    const auto violated = [](RequestId id, const char* what) {
      return absl::InternalError(absl::StrCat("PlanQueue: ", ToString(id), " ", what));
    };
    for (const auto& place : sp_waiting_) {
      if (waiting_.count(place) == 0) return violated(place.second, "waits as an SP plan only");
      if (unplaced_.count(place) > 0) return violated(place.second, "waits, and has blocks");
    }
    int64_t tokens = 0;
    for (const auto& [id, prompt_tokens] : front_) tokens += prompt_tokens;
    if (tokens == front_tokens_) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("PlanQueue: ", front_tokens_, " tokens counted in front, ", tokens, " found"));
  }

 private:
  using Order = std::set<std::pair<PlanSequence, RequestId>>;

  const int64_t ahead_;
  const BatchLimits step_;
  Order waiting_;
  Order sp_waiting_;
  Order unplaced_;
  std::map<RequestId, int64_t> front_;  // with their prompts' tokens
  int64_t front_tokens_ = 0;
};

}  // namespace skein::scheduler
