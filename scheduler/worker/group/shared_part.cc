#include "scheduler/worker/group/shared_part.h"

#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

bool IsSubset(const PrepareFormation& order) {
  return order.size >= 2 && std::has_single_bit(static_cast<uint32_t>(order.size)) &&
         order.first >= 0 && order.first % order.size == 0;
}

}  // namespace

// ---- orders ----

void SharedPart::Prepare(const PrepareFormation& order, TimeUs now) {
  SKEIN_CHECK(order.shared.has_value());
  if (!cannot_.ok()) return Refuse(order.epoch, cannot_);
  if (order.epoch <= order_.epoch) {
    return Refuse(order.epoch, absl::FailedPreconditionError(absl::StrCat(
                                   "epoch: ", order.epoch, " is not above ", order_.epoch)));
  }
  if (!IsSubset(order)) {
    return Refuse(order.epoch, absl::InvalidArgumentError(
                                   absl::StrCat("first, size: ", order.first, ", ", order.size,
                                                " are no aligned power of two")));
  }
  if (phase_ >= Phase::kEntering) {
    return Refuse(order.epoch, absl::FailedPreconditionError(absl::StrCat(
                                   "this instance shares its weights under epoch ", order_.epoch)));
  }
  if (holds_any()) Drop(absl::CancelledError("a newer epoch is being prepared"));
  order_ = order;
  phase_ = Phase::kPreparing;
  keep_until_us_ = now + order.keep_us;
  turn_ = {};
  ready_ = set_due_ = set_done_ = false;
  open_call_ = NextCall();
  emit_(CallSharing{PrepareShared{.call = open_call_,
                                  .epoch = order.epoch,
                                  .members = {order.generation, order.first, order.size},
                                  .mode = *order.shared}});
}

void SharedPart::Commit(const CommitFormation& order, TimeUs now) {
  if (!Holds(order.epoch) || phase_ == Phase::kPreparing) {
    return Refuse(order.epoch, absl::NotFoundError("this epoch is not prepared here"));
  }
  if (phase_ != Phase::kPrepared) return;  // repeated
  phase_ = Phase::kEntering;
  keep_until_us_ = kNever;
  asked_us_ = now;
}

void SharedPart::Order(const OrderMode& order) {
  if (!Holds(order.epoch) || phase_ != Phase::kShared || order.turn < turn_.turn) return;
  const bool same = order.turn == turn_.turn;
  switch (order.act) {
    case OrderMode::Act::kReady:
      if (same) {
        if (ready_) TellMode(ModeTold::Phase::kReady);
        return;
      }
      turn_ = order;
      ready_ = set_due_ = set_done_ = false;
      open_call_ = NextCall();
      emit_(CallSharing{ReadyMode{open_call_, order.epoch, order.mode}});
      return;
    case OrderMode::Act::kSet:
      if (!same || !ready_) return;
      if (set_done_) return TellMode(ModeTold::Phase::kSet);
      set_due_ = pause_ == Pause::kNone;  // else it is being set
      return;
    case OrderMode::Act::kDrop:
      if (same && !set_done_ && pause_ == Pause::kNone) ready_ = set_due_ = false;
  }
}

void SharedPart::End(const EndFormation& order, TimeUs now) {
  if (!Holds(order.epoch)) {
    return Refuse(order.epoch, absl::NotFoundError("this epoch is not known here"));
  }
  Entered() ? Leave(order.why, order.how, now) : Drop(order.why);
}

// Both ways leave at the next pause that the owner of the batch gives: the engine is told which one
// it was.
void SharedPart::Leave(const absl::Status& why, Switch how, TimeUs now) {
  if (phase_ == Phase::kLeaving) return;
  leave_why_ = why;
  how_ = how;
  asked_us_ = now;
  set_due_ = false;
  phase_ = Phase::kLeaving;
}

void SharedPart::Registered(uint64_t told_epoch) {
  const bool entered = phase_ >= Phase::kEntering;
  if (!holds_any() || entered || told_epoch == order_.epoch) return;
  Drop(absl::CancelledError("a stream to the orchestrator began before it was told"));
}

void SharedPart::Abandon(const absl::Status& why, TimeUs now) {
  if (holds_any()) Entered() ? Leave(why, Switch::kHard, now) : Drop(why);
}

void SharedPart::Fail(const absl::Status& why) {
  if (holds_any()) Drop(why);
}

// ---- the engine ----

void SharedPart::AtPause(TimeUs now, std::vector<BlockMove> moves) {
  if (pause_ != Pause::kNone) return;
  SKEIN_CHECK(PauseDue());
  pause_call_ = NextCall();
  paused_us_ = now;
  if (phase_ == Phase::kEntering) {
    pause_ = Pause::kEnter;
    emit_(CallSharing{EnterShared{pause_call_, order_.epoch, *order_.shared}});
  } else if (phase_ == Phase::kLeaving) {
    pause_ = Pause::kLeave;
    emit_(CallSharing{LeaveShared{pause_call_, order_.epoch, how_, std::move(moves)}});
  } else {
    set_due_ = false;
    setting_ = turn_;
    pause_ = Pause::kSet;
    emit_(CallSharing{SetMode{pause_call_, order_.epoch, turn_.mode}});
  }
}

absl::Status SharedPart::Done(const SharingDone& done, TimeUs now) {
  if (pause_ != Pause::kNone && done.call == pause_call_) {
    switch (std::exchange(pause_, Pause::kNone)) {
      case Pause::kEnter:
        EnterDone(done.status, now);
        break;
      case Pause::kSet:
        SetDone(done.status, now);
        break;
      default:
        Drop(done.status.ok() ? leave_why_ : done.status, now - asked_us_);
        return done.status;
    }
    return absl::OkStatus();
  }
  if (open_call_ == 0 || done.call != open_call_) return absl::OkStatus();  // it is over
  open_call_ = 0;
  if (phase_ != Phase::kPreparing) {
    ReadyDone(done.status);
  } else if (!done.status.ok()) {
    Drop(done.status);
  } else {
    phase_ = Phase::kPrepared;
    Tell({.epoch = order_.epoch, .phase = FormationTold::Phase::kPrepared, .why = {}});
  }
  return absl::OkStatus();
}

void SharedPart::ReadyDone(const absl::Status& status) {
  if (phase_ != Phase::kShared) return;
  ready_ = status.ok();
  TellMode(ready_ ? ModeTold::Phase::kReady : ModeTold::Phase::kRefused, status);
}

// An order to leave may have come meanwhile. Then it is due now, or there is nothing to leave.
void SharedPart::EnterDone(const absl::Status& status, TimeUs now) {
  const bool leaves = phase_ == Phase::kLeaving;
  if (!status.ok()) return Drop(leaves ? leave_why_ : status);
  mode_ = *order_.shared;
  if (leaves) return;
  phase_ = Phase::kShared;
  Tell({.epoch = order_.epoch,
        .phase = FormationTold::Phase::kBound,
        .why = {},
        .cut_over_us = now - asked_us_,
        .drain_us = paused_us_ - asked_us_});
}

// Others may work in the new mode already, so one that cannot leaves.
void SharedPart::SetDone(const absl::Status& status, TimeUs now) {
  if (phase_ != Phase::kShared) return;  // it leaves
  if (!status.ok()) return Leave(status, Switch::kHard, now);
  mode_ = setting_.mode;
  if (turn_.turn != setting_.turn) return;  // a later one was begun meanwhile
  set_done_ = true;
  TellMode(ModeTold::Phase::kSet);
}

void SharedPart::Tick(TimeUs now) {
  if (now < keep_until_us_) return;
  Drop(absl::DeadlineExceededError("no order to enter came"));
}

// ---- what is told ----

void SharedPart::Refuse(uint64_t epoch, const absl::Status& why) const {
  emit_(TellFormation{{.epoch = epoch, .phase = FormationTold::Phase::kEnded, .why = why}});
}

void SharedPart::Drop(const absl::Status& why, TimeUs drain_us) {
  phase_ = Phase::kAlone;
  keep_until_us_ = kNever;
  open_call_ = 0;
  pause_ = Pause::kNone;
  set_due_ = false;
  Tell({.epoch = order_.epoch,
        .phase = FormationTold::Phase::kEnded,
        .why = why,
        .cut_over_us = 0,
        .drain_us = drain_us});
}

void SharedPart::Tell(FormationTold told) {
  told_ = std::move(told);
  emit_(TellFormation{told_});
}

void SharedPart::TellMode(ModeTold::Phase phase, absl::Status why) const {
  emit_(scheduler::TellMode{{order_.epoch, turn_.turn, phase, std::move(why)}});
}

absl::Status SharedPart::CheckInvariants() const {
  if (pause_ != Pause::kNone && !holds_any()) {
    return absl::InternalError("SharedPart 1: steps wait for the engine, but no epoch is held");
  }
  if ((set_due_ || set_done_) && !ready_) {
    return absl::InternalError("SharedPart 2: a mode is set without being ready for it");
  }
  const bool waits = phase_ == Phase::kPreparing || phase_ == Phase::kPrepared;
  if (waits != (keep_until_us_ != kNever)) {
    return absl::InternalError("SharedPart 3: the time of what is prepared does not fit");
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
