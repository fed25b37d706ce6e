#include "scheduler/worker/steps/ring_steps.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"
#include "scheduler/worker/steps/tensor_members.h"

namespace skein::scheduler {

namespace {

// The rings that the step of `part` needs.
std::vector<OpenRing> RingsOf(const RingPart& part) {
  const std::vector<std::string>& all = part.comm_addresses;
  std::vector<OpenRing> rings;
  if (all.size() <= 1) return rings;
  rings.push_back({RingKind::kPieces, part.group, part.rank, all});
  if (part.tp > 1) {
    rings.push_back({RingKind::kTensor, part.tensor_group, part.rank % part.tp,
                     TensorMembers(all, part.rank, part.tp)});
  }
  if (!part.piece.moves.empty()) {
    rings.push_back({RingKind::kMoves, part.moves_group, part.rank, all});
  }
  return rings;
}

}  // namespace

RingSteps::Effects RingSteps::Enter(uint64_t step, const RingPart& part) {
  SKEIN_CHECK(phase_ == Phase::kOutside);
  Effects effects;
  phase_ = Phase::kEntering;
  step_ = step;
  for (Kind& kind : kinds_) kind.wanted = false;
  std::vector<OpenRing> rings = RingsOf(part);
  for (OpenRing& ring : rings) {
    Kind& kind = Of(ring.group);
    kind.wanted = true;
    if (!kind.made.has_value() || kind.made->key != ring.key) to_open_.push_back(std::move(ring));
  }
  for (const RingKind kind : kRingKinds) {
    const bool opens = std::any_of(to_open_.begin(), to_open_.end(),
                                   [kind](const OpenRing& one) { return one.group == kind; });
    if (opens || !Of(kind).wanted) Drop(kind, &effects);
  }
  OpenNext(&effects);
  return effects;
}

RingSteps::Effects RingSteps::Opened(const absl::Status& status) {
  SKEIN_CHECK(!to_open_.empty());
  Effects effects;
  const OpenRing opened = std::move(to_open_.front());
  to_open_.pop_front();
  if (!status.ok()) {
    Refuse(absl::UnavailableError(status.message()), &effects);
    return effects;
  }
  Of(opened.group).made = Group{opened.key};
  OpenNext(&effects);
  return effects;
}

void RingSteps::OpenNext(Effects* effects) {
  if (!to_open_.empty()) {
    effects->push_back(to_open_.front());
  } else if (Aborted()) {
    Refuse(absl::CancelledError("the step was aborted before it began"), effects);
  } else {
    entry_ = absl::OkStatus();
    phase_ = Phase::kInside;
  }
}

void RingSteps::Refuse(absl::Status why, Effects* effects) {
  entry_ = std::move(why);
  to_open_.clear();
  AbortRings(entry_, effects);
  for (const RingKind kind : kRingKinds) Drop(kind, effects);
  phase_ = Phase::kOutside;
}

RingSteps::Effects RingSteps::Leave(const absl::Status& status) {
  SKEIN_CHECK(phase_ == Phase::kInside);
  Effects effects;
  phase_ = Phase::kOutside;
  if (!status.ok()) {
    // The others may not know it yet: a failure of this instance must not leave them waiting.
    AbortRings(absl::UnavailableError("a member's step failed"), &effects);
    Drop(RingKind::kPieces, &effects);
    Drop(RingKind::kTensor, &effects);
  }
  Drop(RingKind::kMoves, &effects);
  return effects;
}

RingSteps::Effects RingSteps::Abort(uint64_t step, const absl::Status& reason) {
  Effects effects;
  aborted_step_ = std::max(aborted_step_, step);
  // A step that is being entered breaks its groups when it has them.
  const bool runs = phase_ == Phase::kInside && step_ <= step;
  const bool has_left = phase_ == Phase::kOutside && step_ == step;
  if (runs || has_left) AbortRings(reason, &effects);
  return effects;
}

RingSteps::Effects RingSteps::Break(const BreakGroup& group, const absl::Status& reason) {
  Effects effects;
  for (const RingKind kind : {RingKind::kPieces, RingKind::kTensor}) {
    std::optional<Group>& made = Of(kind).made;
    if (!made.has_value() || made->key != group.group) continue;
    if (!std::exchange(made->broken, true)) effects.push_back(AbortRing{kind, reason});
    return effects;
  }
  effects.push_back(RefuseRing{group, reason});
  return effects;
}

RingSteps::Effects RingSteps::Stop() {
  Effects effects;
  stopped_ = true;
  AbortRings(absl::UnavailableError("an instance is stopping"), &effects);
  return effects;
}

void RingSteps::AbortRings(const absl::Status& reason, Effects* effects) {
  for (const RingKind kind : kRingKinds) {
    std::optional<Group>& made = Of(kind).made;
    if (!made.has_value() || std::exchange(made->broken, true)) continue;
    effects->push_back(AbortRing{kind, reason});
  }
}

void RingSteps::Drop(RingKind kind, Effects* effects) {
  std::optional<Group>& made = Of(kind).made;
  if (!made.has_value()) return;
  made.reset();
  effects->push_back(CloseRing{kind});
}

absl::Status RingSteps::CheckInvariants() const {
  const auto violated = [](int number, const char* what) {
    return absl::InternalError(absl::StrCat("RingSteps ", number, ": ", what));
  };
  if ((phase_ == Phase::kEntering) == to_open_.empty()) {
    return violated(1, "a group is awaited, but no step is being entered");
  }
  if (phase_ == Phase::kOutside && Of(RingKind::kMoves).made.has_value()) {
    return violated(2, "the group for moves outlives its step");
  }
  if (phase_ == Phase::kOutside && Of(RingKind::kTensor).made.has_value() &&
      !Of(RingKind::kPieces).made.has_value()) {
    return violated(5, "a tensor group outlives the group of its chunk");
  }
  if (phase_ != Phase::kInside) return absl::OkStatus();
  bool whole = false;
  for (const Kind& kind : kinds_) {
    if (kind.made.has_value() != kind.wanted) {
      return violated(3, "a running step lacks a group, or has one too many");
    }
    whole = whole || (kind.made.has_value() && !kind.made->broken);
  }
  if (Aborted() && whole) return violated(4, "an aborted step runs in a group that is not broken");
  return absl::OkStatus();
}

}  // namespace skein::scheduler
