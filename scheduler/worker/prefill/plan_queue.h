// PlanQueue: the requests of a prefill-worker that wait for blocks, those in front (they have
// blocks, and compute or wait for decode blocks), and the SP plans that have blocks but no place
// yet. Part of PrefillRequests. Each call costs the logarithm of the number of requests; First as
// much as there are tenants that wait.
//
// Order. SP plans get blocks in plan-sequence order, and no plain prompt of a larger sequence
// before them. Plain prompts go fairly by tenant (fairness/fair_order.h), those of one tenant in
// plan-sequence order unless they have goals; so with one tenant all go in plan-sequence order. A
// plain prompt may be overtaken by a younger SP plan for this. That plan keeps its blocks, and is
// placed only when all older plans here are (prefill_requests.h). So when the next prompt finds no
// room, the oldest one that such a plan waits for is tried beside it (OldestBeforeUnplaced), and
// may take the blocks back.
//
// In front. A request that is computed stays in front until the decode side has granted blocks, so
// that computed prompts do not pile up here while there is no decode room. Each tenant may have
// `ahead` in front, and more as long as they are what the step in flight and the next one have room
// for: the engine does not wait for answers, and a tenant whose prompts wait for decode room, or
// are long, keeps no other one from the front. Members of an SP plan that do not lead it are never
// in front.
//
// Invariants (CheckInvariants): the SP plans that wait are not among the unplaced, which have
// blocks; the prompts' tokens of those in front are added up, by tenant.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"
#include "scheduler/batch/batch_scheduler.h"
#include "scheduler/fairness/fair_order.h"

namespace skein::scheduler {

class PlanQueue {
 public:
  struct Place {
    PlanSequence sequence;
    RequestId id;
    bool sequence_parallel = false;
    std::string_view tenant;  // read during the call only
    int64_t weight = 1;
  };

  PlanQueue(int64_t ahead, const BatchLimits& step) : ahead_(ahead), step_(step) {}

  // ---- those that wait for blocks ----
  // `latest_us`: a plain prompt that begins later misses its goal; kNever: it has none.
  void Wait(const Place& place, TimeUs latest_us = kNever) {
    if (place.sequence_parallel) {
      sp_waiting_.emplace(place.sequence, place.id);
    } else if (!plain_.Has(OwnerOf(place), KeyOf(place))) {
      plain_.Add(OwnerOf(place), KeyOf(place), latest_us);
      plain_order_.insert(KeyOf(place));
    }
  }
  void StopWaiting(const Place& place) {
    plain_.Remove(OwnerOf(place), KeyOf(place));
    plain_order_.erase(KeyOf(place));
    sp_waiting_.erase(KeyOf(place));
  }
  // It has blocks: its tenant has had its turn, for so many tokens.
  void Serve(const Place& place, int64_t prompt_tokens) {
    plain_.Serve(OwnerOf(place), KeyOf(place), prompt_tokens);
    StopWaiting(place);
  }
  // `tokens` of an SP plan were computed here. Its tenant is charged for them only now, not when it
  // gets blocks, because then it may not be known which part of the plan is computed here.
  void ChargePiece(const Place& place, int64_t tokens) { plain_.Charge(OwnerOf(place), tokens); }
  // The next to get blocks. If there is a plain prompt that may enter the front, then none that may
  // not.
  std::optional<RequestId> First(TimeUs now = 0) {
    auto plain = plain_.First(now, [this](std::string_view name) { return MayEnterFront(name); });
    if (!plain.has_value()) plain = plain_.First(now);
    if (!sp_waiting_.empty() && (!plain.has_value() || *sp_waiting_.begin() < *plain)) {
      return sp_waiting_.begin()->second;
    }
    if (!plain.has_value()) return std::nullopt;
    return plain->second;
  }
  // The plain prompt of the smallest sequence, if an SP plan behind it has blocks and no place yet.
  std::optional<RequestId> OldestBeforeUnplaced() const {
    if (plain_order_.empty() || unplaced_.empty()) return std::nullopt;
    if (*unplaced_.rbegin() < *plain_order_.begin()) return std::nullopt;
    return plain_order_.begin()->second;
  }
  // An SP plan before `sequence` waits for blocks.
  bool SpPlanWaitsBefore(PlanSequence sequence) const {
    return !sp_waiting_.empty() && sp_waiting_.begin()->first < sequence;
  }
  size_t waiting() const { return plain_.size() + sp_waiting_.size(); }

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
  bool MayEnterFront(std::string_view tenant) const {
    const auto of = fronts_.find(tenant);
    if (of == fronts_.end() || of->second.count < ahead_) return true;
    return static_cast<int64_t>(front_.size()) < 2 * step_.max_batch_sequences &&
           of->second.tokens < 2 * step_.max_batch_tokens;
  }
  void EnterFront(RequestId id, std::string_view tenant, int64_t prompt_tokens) {
    if (front_.count(id) > 0) return;
    const auto of = fronts_.try_emplace(std::string(tenant)).first;
    front_.emplace(id, InFrontOf{of, prompt_tokens});
    ++of->second.count;
    of->second.tokens += prompt_tokens;
  }
  void LeaveFront(RequestId id) {
    const auto left = front_.extract(id);
    if (left.empty()) return;
    const auto of = left.mapped().of;
    of->second.tokens -= left.mapped().prompt_tokens;
    if (--of->second.count == 0) fronts_.erase(of);
  }
  bool InFront(RequestId id) const { return front_.count(id) > 0; }
  size_t front() const { return front_.size(); }

  absl::Status CheckInvariants() const {
    const auto violated = [](RequestId id, const char* what) {
      return absl::InternalError(absl::StrCat("PlanQueue: ", ToString(id), " ", what));
    };
    for (const auto& place : sp_waiting_) {
      if (unplaced_.count(place) > 0) return violated(place.second, "waits, and has blocks");
    }
    if (plain_order_.size() != plain_.size()) {
      return absl::InternalError("PlanQueue: a plain prompt waits in one of two orders only");
    }
    int64_t tokens = 0, counted = 0, count = 0;
    for (const auto& [id, in_front] : front_) tokens += in_front.prompt_tokens;
    for (const auto& [tenant, front] : fronts_) {
      counted += front.tokens;
      count += front.count;
    }
    if (tokens == counted && count == static_cast<int64_t>(front_.size())) {
      return plain_.CheckInvariants();
    }
    return absl::InternalError(
        absl::StrCat("PlanQueue: ", counted, " tokens counted in front, ", tokens, " found"));
  }

 private:
  using Key = std::pair<PlanSequence, RequestId>;
  using Order = std::set<Key>;
  struct Front {
    int64_t count = 0;
    int64_t tokens = 0;  // of prompts
  };
  using Fronts = std::map<std::string, Front, std::less<>>;
  struct InFrontOf {
    Fronts::iterator of;
    int64_t prompt_tokens = 0;
  };

  static FairOwner OwnerOf(const Place& place) { return {place.tenant, place.weight, 0}; }
  static Key KeyOf(const Place& place) { return {place.sequence, place.id}; }

  const int64_t ahead_;
  const BatchLimits step_;
  FairOrder<Key> plain_;
  Order plain_order_;  // of the same
  Order sp_waiting_;
  Order unplaced_;
  std::map<RequestId, InFrontOf> front_;
  Fronts fronts_;  // by tenant, of those that have any
};

}  // namespace skein::scheduler
