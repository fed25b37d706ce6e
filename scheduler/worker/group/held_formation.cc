#include "scheduler/worker/group/held_formation.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

bool IsSubset(const PrepareFormation& order) {
  return order.size >= 2 && std::has_single_bit(static_cast<uint32_t>(order.size)) &&
         order.first >= 0 && order.first % order.size == 0;
}

}  // namespace

void HeldFormation::Prepare(const PrepareFormation& order, TimeUs now) {
  if (order.epoch <= order_.epoch) {
    return Refuse(order.epoch, absl::FailedPreconditionError(absl::StrCat(
                                   "epoch: ", order.epoch, " is not above ", order_.epoch)));
  }
  if (!IsSubset(order)) {
    return Refuse(order.epoch, absl::InvalidArgumentError(
                                   absl::StrCat("first, size: ", order.first, ", ", order.size,
                                                " are no aligned power of two")));
  }
  if (order.shift.has_value() && !order.shift->Fits(order.size)) {
    return Refuse(order.epoch, absl::InvalidArgumentError(absl::StrCat(
                                   "shift.tp: ", order.shift->tp,
                                   " is not a power of two below the size ", order.size)));
  }
  if (bound()) {
    return Refuse(order.epoch, absl::FailedPreconditionError(absl::StrCat(
                                   "this instance is bound under epoch ", order_.epoch)));
  }
  Forget(absl::CancelledError("a newer epoch is being prepared"));
  order_ = order;
  phase_ = Phase::kOpening;
  keep_until_us_ = now + order.keep_us;
  emit_(OpenFeed{order.epoch, order.generation, order.first, order.size});
}

void HeldFormation::FeedOpened(uint64_t epoch, const absl::StatusOr<int>& rank, TimeUs now) {
  if (!Holds(epoch) || phase_ != Phase::kOpening) return;
  if (!rank.ok()) return Drop(rank.status());
  rank_ = *rank;
  opened_us_ = now;
  // OwnEnded goes on from there.
  phase_ = OwnFirst() ? Phase::kDraining : Phase::kPrepared;
  if (may_bind()) Tell({.epoch = order_.epoch, .phase = FormationTold::Phase::kPrepared});
}

void HeldFormation::OwnEnded(TimeUs now) {
  if (!draining()) return;
  phase_ = Phase::kPrepared;
  Tell({.epoch = order_.epoch,
        .phase = FormationTold::Phase::kPrepared,
        .drain_us = now - opened_us_});
}

void HeldFormation::Forget(const absl::Status& why) {
  if (phase_ == Phase::kAlone || bound()) return;
  if (may_bind() && !leads()) {  // the lead may have committed
    emit_(SendOnFeed{order_.epoch, 0, FeedEnd{order_.epoch, why}});
  }
  emit_(CloseFeed{order_.epoch, /*broken=*/false, why});
  Drop(why);
}

void HeldFormation::Tick(TimeUs now) {
  if (now < keep_until_us_) return;
  Forget(absl::DeadlineExceededError(draining() ? "its own sequences did not end in time"
                                                : "no step of the epoch came"));
}

void HeldFormation::Refuse(uint64_t epoch, const absl::Status& why) const {
  emit_(TellFormation{{.epoch = epoch, .phase = FormationTold::Phase::kEnded, .why = why}});
}

void HeldFormation::Bind(TimeUs now) {
  SKEIN_CHECK(may_bind());
  phase_ = Phase::kBound;
  keep_until_us_ = kNever;
  bind_us_ = now;
}

void HeldFormation::TellBound(TimeUs entered_us, TimeUs now) {
  Tell({.epoch = order_.epoch,
        .phase = FormationTold::Phase::kBound,
        .cut_over_us = now - bind_us_,
        .drain_us = now - entered_us});
}

void HeldFormation::Ended(const absl::Status& why, TimeUs drain_us) { Drop(why, drain_us); }

void HeldFormation::Drop(const absl::Status& why, TimeUs drain_us) {
  phase_ = Phase::kAlone;
  keep_until_us_ = kNever;
  Tell({.epoch = order_.epoch,
        .phase = FormationTold::Phase::kEnded,
        .why = why,
        .drain_us = drain_us});
}

void HeldFormation::Tell(FormationTold told) {
  told_ = std::move(told);
  emit_(TellFormation{told_});
}

}  // namespace skein::scheduler
