// SharedPart: a decode-worker's part in a formation whose members share their weights
// (formation_messages.h): it prepares, enters, changes its mode and leaves as the orchestrator
// orders, has the engine do it (sharing_engine.h), and tells each step of it. The instance runs its
// own batch all the time; steps only wait while the engine enters, changes its mode or leaves.
//
// Between steps. What changes how the next step computes begins only while no step runs: the owner
// launches nothing while WantsPause(), and calls AtPause() when the engine is idle. Before it
// leaves, blocks may have to be emptied, which takes steps: the owner calls AtPause when that is
// done.
//
// Sans-io: effects by `emit`, inside the call that has them. One thread. Each call costs O(1).
//
// Invariants, by number (CheckInvariants names them):
//   1. At most one call to the engine that steps wait for is open, and only while an epoch is held.
//   2. A mode is set only after this instance was ready for it in the same turn.
//   3. What is prepared and not entered has a time at which it is forgotten.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/formation_messages.h"
#include "scheduler/base/shared_mode.h"
#include "scheduler/base/time.h"
#include "scheduler/vocabulary/block_range.h"
#include "scheduler/worker/group/bound_effects.h"
#include "scheduler/worker/group/sharing_engine.h"

namespace skein::scheduler {

// Effect: to the orchestrator, if its stream is open.
struct TellMode {
  ModeTold told;
};
// Effect: have the engine do this.
struct CallSharing {
  SharingCall call;
};
using SharedEffect = std::variant<TellFormation, TellMode, CallSharing>;
using EmitShared = std::function<void(SharedEffect)>;

class SharedPart {
 public:
  // `cannot`: not OK: no order is taken, with this reason (SharingEngine::CanShare).
  SharedPart(absl::Status cannot, EmitShared emit)
      : cannot_(std::move(cannot)), emit_(std::move(emit)) {}

  // ---- orders, about epochs of shared weights ----

  // Refused, and told so, if the engine cannot share, the epoch is not above all former ones, the
  // members are no aligned power of two, or this instance has entered another epoch. Else it takes
  // the place of what was held. REQUIRES: order.shared.
  void Prepare(const PrepareFormation& order, TimeUs now);
  void Commit(const CommitFormation& order, TimeUs now);
  void Order(const OrderMode& order);
  void End(const EndFormation& order, TimeUs now);
  // A stream to the orchestrator began, whose hello told of this epoch. The orchestrator has given
  // up what it was not told of.
  void Registered(uint64_t told_epoch);
  // The process ends: this instance leaves, and takes its weights back first.
  void Abandon(const absl::Status& why, TimeUs now);
  // Its engine has failed: it takes part no longer, at once.
  void Fail(const absl::Status& why);

  // ---- the engine ----

  // Not OK: of LeaveShared, answered by an error: the engine has failed.
  absl::Status Done(const SharingDone& done, TimeUs now);
  bool WantsPause() const { return pause_ != Pause::kNone || PauseDue(); }
  // The engine is to leave, and was not told to yet.
  bool LeaveDue() const { return phase_ == Phase::kLeaving && pause_ == Pause::kNone; }
  // No step runs. `moves`: for LeaveShared. REQUIRES: WantsPause().
  void AtPause(TimeUs now, std::vector<BlockMove> moves = {});

  void Tick(TimeUs now);
  TimeUs NextTick() const { return keep_until_us_; }

  // ---- what is held ----

  bool Holds(uint64_t epoch) const { return phase_ != Phase::kAlone && order_.epoch == epoch; }
  bool holds_any() const { return phase_ != Phase::kAlone; }
  // It computes with the weights of others; empty: alone.
  std::optional<SharedMode> mode() const {
    return phase_ >= Phase::kShared ? std::optional(mode_) : std::nullopt;
  }
  const FormationTold& told() const { return told_; }  // the latest
  absl::Status CheckInvariants() const;

 private:
  enum class Phase { kAlone, kPreparing, kPrepared, kEntering, kShared, kLeaving };
  enum class Pause { kNone, kEnter, kSet, kLeave };  // the call that steps wait for

  bool PauseDue() const {
    return phase_ == Phase::kEntering || phase_ == Phase::kLeaving ||
           (phase_ == Phase::kShared && set_due_);
  }
  bool Entered() const { return phase_ >= Phase::kShared || pause_ == Pause::kEnter; }
  uint64_t NextCall() { return ++last_call_; }
  void Refuse(uint64_t epoch, const absl::Status& why) const;
  void Leave(const absl::Status& why, Switch how, TimeUs now);
  void EnterDone(const absl::Status& status, TimeUs now);
  void SetDone(const absl::Status& status, TimeUs now);
  void ReadyDone(const absl::Status& status);
  void Drop(const absl::Status& why, TimeUs drain_us = 0);
  void Tell(FormationTold told);
  void TellMode(ModeTold::Phase phase, absl::Status why = {}) const;

  const absl::Status cannot_;
  const EmitShared emit_;
  Phase phase_ = Phase::kAlone;
  PrepareFormation order_;  // the latest
  FormationTold told_;
  TimeUs keep_until_us_ = kNever;
  TimeUs asked_us_ = 0;   // to enter, or to leave
  TimeUs paused_us_ = 0;  // when the engine was idle for it
  absl::Status leave_why_;
  Switch how_ = Switch::kHard;

  SharedMode mode_ = SharedMode::kWas;
  OrderMode turn_;         // the latest, while the epoch lasts
  bool ready_ = false;     // for that turn
  bool set_due_ = false;   // by that turn, and not begun
  bool set_done_ = false;  // likewise, and done
  OrderMode setting_;      // of the latest SetMode
  uint64_t last_call_ = 0;
  uint64_t open_call_ = 0;  // PrepareShared or ReadyMode that was not answered; 0: none
  Pause pause_ = Pause::kNone;
  uint64_t pause_call_ = 0;  // its number
};

}  // namespace skein::scheduler
