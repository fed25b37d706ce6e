// HeldFormation: which formation this instance has, and how far it is: opening, waiting for own
// sequences to end, prepared, or bound. It takes the orchestrator's orders up to the bind, forgets
// what is given up, and tells each step of it (FormationTold). What happens while the instance is
// bound is not its concern: its owner says when that begins and ends. Part of BoundGroup, and used
// only on its thread. Each call costs O(1).
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/base/formation_messages.h"
#include "scheduler/base/own_end_first.h"
#include "scheduler/base/time.h"
#include "scheduler/worker/group/bound_effects.h"

namespace skein::scheduler {

class HeldFormation {
 public:
  // Effects: OpenFeed, CloseFeed, SendOnFeed, TellFormation.
  explicit HeldFormation(EmitBound emit) : emit_(std::move(emit)) {}

  // ---- up to the bind ----

  // Refused, and told so, if the epoch is not above all former ones, the members are no aligned
  // power of two, or this instance is bound. Else it takes the place of what was held.
  void Prepare(const PrepareFormation& order, TimeUs now);
  // Of the OpenFeed: this instance's rank. Not OK: the context is not there.
  void FeedOpened(uint64_t epoch, const absl::StatusOr<int>& rank, TimeUs now);
  // There are no own sequences now. They may be what this instance waits for.
  void OwnEnded(TimeUs now);
  // What is held and not bound is given up; the others hear of it.
  void Forget(const absl::Status& why);
  // What is held and not bound is given up when its time has passed.
  void Tick(TimeUs now);
  TimeUs NextTick() const { return keep_until_us_; }
  // Answers an order about an epoch that is not held here, or is not to be.
  void Refuse(uint64_t epoch, const absl::Status& why) const;

  // ---- while it is bound ----

  void Bind(TimeUs now);  // REQUIRES: may_bind()
  // Its first step begins. It waited for an own step since `entered_us`.
  void TellBound(TimeUs entered_us, TimeUs now);
  // This instance works alone again. `drain_us` as in FormationTold.
  void Ended(const absl::Status& why, TimeUs drain_us);

  // ---- what is held ----

  bool Holds(uint64_t epoch) const { return phase_ != Phase::kAlone && epoch == order_.epoch; }
  bool holds_any() const { return phase_ != Phase::kAlone; }
  // Its feed is open: the other ranks may send something.
  bool HasFeed(uint64_t epoch) const { return Holds(epoch) && phase_ != Phase::kOpening; }
  bool draining() const { return phase_ == Phase::kDraining; }
  bool may_bind() const { return phase_ == Phase::kPrepared; }
  bool bound() const { return phase_ == Phase::kBound; }
  // Whether sequences of its own may begin: not while they are to end first. When they have ended,
  // new ones may, if the group will take them.
  bool TakesOwn() const {
    return !draining() && !(may_bind() && OwnFirst() && !OwnJoinGroup(order_.own));
  }

  const PrepareFormation& order() const { return order_; }  // the latest
  bool leads() const { return rank_ == 0; }                 // REQUIRES: the feed is open
  const FormationTold& told() const { return told_; }       // the latest

 private:
  enum class Phase {
    kAlone,
    kOpening,
    kDraining,  // the feed is open; own sequences end first
    kPrepared,
    kBound
  };

  bool OwnFirst() const { return OwnEndFirst(order_.own, leads()); }
  void Drop(const absl::Status& why, TimeUs drain_us = 0);
  void Tell(FormationTold told);

  const EmitBound emit_;
  Phase phase_ = Phase::kAlone;
  PrepareFormation order_;
  TimeUs keep_until_us_ = kNever;
  int rank_ = 0;
  FormationTold told_;
  TimeUs opened_us_ = 0, bind_us_ = 0;
};

}  // namespace skein::scheduler
