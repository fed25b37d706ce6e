#include "scheduler/worker/steps/ring_steps.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

RingSteps::Effects RingSteps::Enter(uint64_t step, const RingPart& part) {
  SKEIN_CHECK(phase_ == Phase::kOutside);
  Effects effects;
  phase_ = Phase::kEntering;
  step_ = step;
  wants_pieces_ = part.comm_addresses.size() > 1;
  wants_moves_ = wants_pieces_ && !part.piece.moves.empty();
  const bool kept = wants_pieces_ && pieces_.has_value() && pieces_->key == part.group;
  if (!kept) Drop(RingKind::kPieces, &effects);
  if (wants_pieces_ && !kept) {
    to_open_.push_back({RingKind::kPieces, part.group, part.rank, part.comm_addresses});
  }
  if (wants_moves_) {
    to_open_.push_back({RingKind::kMoves, part.moves_group, part.rank, part.comm_addresses});
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
  GroupOf(opened.group) = Group{opened.key};
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
  Drop(RingKind::kMoves, effects);
  Drop(RingKind::kPieces, effects);
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
  if (!pieces_.has_value() || pieces_->key != group.group) {
    effects.push_back(RefuseRing{group, reason});
  } else if (!std::exchange(pieces_->broken, true)) {
    effects.push_back(AbortRing{RingKind::kPieces, reason});
  }
  return effects;
}

RingSteps::Effects RingSteps::Stop() {
  Effects effects;
  stopped_ = true;
  AbortRings(absl::UnavailableError("an instance is stopping"), &effects);
  return effects;
}

void RingSteps::AbortRings(const absl::Status& reason, Effects* effects) {
  for (const RingKind group : {RingKind::kPieces, RingKind::kMoves}) {
    std::optional<Group>& made = GroupOf(group);
    if (!made.has_value() || std::exchange(made->broken, true)) continue;
    effects->push_back(AbortRing{group, reason});
  }
}

void RingSteps::Drop(RingKind group, Effects* effects) {
  std::optional<Group>& made = GroupOf(group);
  if (!made.has_value()) return;
  made.reset();
  effects->push_back(CloseRing{group});
}

absl::Status RingSteps::CheckInvariants() const {
  const auto violated = [](int number, const char* what) {
    return absl::InternalError(absl::StrCat("RingSteps ", number, ": ", what));
  };
  if ((phase_ == Phase::kEntering) == to_open_.empty()) {
    return violated(1, "a group is awaited, but no step is being entered");
  }
  if (phase_ == Phase::kOutside && moves_.has_value()) {
    return violated(2, "the group for moves outlives its step");
  }
  if (phase_ != Phase::kInside) return absl::OkStatus();
  if (pieces_.has_value() != wants_pieces_ || moves_.has_value() != wants_moves_) {
    return violated(3, "a running step lacks a group, or has one too many");
  }
  const bool whole = (pieces_.has_value() && !pieces_->broken) || (moves_ && !moves_->broken);
  if (Aborted() && whole) return violated(4, "an aborted step runs in a group that is not broken");
  return absl::OkStatus();
}

}  // namespace skein::scheduler
