// RingSteps: the rings by which this instance's engine steps together with other instances: when
// they are opened on the pairwise links, kept from step to step, broken and closed. Decides only:
// its shells carry out the effects on a RingFabric (services/worker/engine/ring_groups.h) and in
// virtual time (tests/sim/ring_groups.h). One caller at a time; nothing waits.
//
// A ring is a name under which messages pass over links that are there already: opening one makes
// no link and no communicator (engine/comm/ring_fabric.h).
//
// Rings. kPieces is of all members of a chunk. kTensor, if the chunk has tp > 1, is of the tp
// members that compute the dense part together: this rank and its neighbours, by rank % tp. Both
// are kept while the pieces of one chunk are run. kMoves, by which history moves, is of all members
// and exists only for the step that moves some. A chunk of one instance needs none.
//
// Life of a step: Enter -> Opened for each ring that it lacks -> entry(): if OK, the step runs and
// ends with Leave; otherwise it has ended. Rings are opened even for a step that was aborted
// before, because its other members learn of it only by them.
//
// Broken rings. A ring of a step that failed, or could not be entered, is broken and closed. A ring
// of a step that was aborted after it had left is broken and kept until another takes its place:
// the other members may already wait in it for the next piece.
//
// Invariants, by number (CheckInvariants names them):
//   1. Rings are awaited exactly while a step is being entered; one ring at a time.
//   2. kMoves exists only while a step is being entered or runs.
//   3. A step runs with the rings that it needs, and with no other.
//   4. If a step that runs was aborted, or this instance stops, each of its rings is broken.
//   5. Between steps, kTensor exists only beside the kPieces of its chunk.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/worker/steps/step.h"

namespace skein::scheduler {

enum class RingKind { kPieces, kTensor, kMoves };
inline constexpr std::array kRingKinds = {RingKind::kPieces, RingKind::kTensor, RingKind::kMoves};

// Effect: open this instance's end of the ring, then call Opened. The last effect of its list.
struct OpenRing {
  RingKind group = RingKind::kPieces;
  GroupId key;
  int rank = 0;                             // in this ring
  std::vector<std::string> comm_addresses;  // of the ring's members, by rank
};
// Effect: the ring is not used any more.
struct CloseRing {
  RingKind group = RingKind::kPieces;
};
// Effect: break the ring. Its calls end with UNAVAILABLE at each member that hears of it.
struct AbortRing {
  RingKind group = RingKind::kPieces;
  absl::Status reason;
};
// Effect: break a ring in which this instance is not and will not be: open it, abort it, close it.
struct RefuseRing {
  BreakGroup refused;
  absl::Status reason;
};
using RingEffect = std::variant<OpenRing, CloseRing, AbortRing, RefuseRing>;

class RingSteps {
 public:
  using Effects = std::vector<RingEffect>;

  // The engine is about to run the step that `part` describes. REQUIRES: no other step is being
  // entered or runs.
  Effects Enter(uint64_t step, const RingPart& part);
  // How the latest OpenRing ended. REQUIRES: it was not answered yet.
  Effects Opened(const absl::Status& status);
  // Whether the step of the latest Enter may run, once its rings are open. UNAVAILABLE: a ring
  // could not be opened. CANCELLED: the step was aborted, or this instance stops.
  const absl::Status& entry() const { return entry_; }
  // The step that runs has ended. REQUIRES: one runs.
  Effects Leave(const absl::Status& status);

  // The step ends early, whether it has yet to enter, runs or has just left. So do all before it.
  Effects Abort(uint64_t step, const absl::Status& reason);
  // This instance will run no further step of that group, a chunk's kPieces or kTensor.
  Effects Break(const BreakGroup& group, const absl::Status& reason);
  // Whatever runs is broken, and nothing runs from now on.
  Effects Stop();

  absl::Status CheckInvariants() const;

 private:
  enum class Phase { kOutside, kEntering, kInside };
  struct Group {
    GroupId key;
    bool broken = false;
  };
  // The rings of one kind.
  struct Kind {
    std::optional<Group> made;
    bool wanted = false;  // by step_
  };

  Kind& Of(RingKind kind) { return kinds_[static_cast<size_t>(kind)]; }
  const Kind& Of(RingKind kind) const { return kinds_[static_cast<size_t>(kind)]; }
  bool Aborted() const { return stopped_ || step_ <= aborted_step_; }
  void OpenNext(Effects* effects);
  void Refuse(absl::Status why, Effects* effects);
  void AbortRings(const absl::Status& reason, Effects* effects);
  void Drop(RingKind kind, Effects* effects);

  Phase phase_ = Phase::kOutside;
  uint64_t step_ = 0;          // the latest that was entered
  uint64_t aborted_step_ = 0;  // it and those before may not run
  bool stopped_ = false;
  absl::Status entry_ = absl::UnavailableError("no step was entered");
  std::deque<OpenRing> to_open_;  // for step_; the first is awaited
  std::array<Kind, kRingKinds.size()> kinds_;
};

}  // namespace skein::scheduler
