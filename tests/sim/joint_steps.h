// The timing of steps that several simulated prefill workers run together. A step begins when all
// members are in the same piece. If one fails or breaks the group, it also ends for the others,
// each at its own time, or at its deadline if the notification was lost. The shipped
// scheduler::RingSteps (ring_groups.h) decides when groups are made, broken and dropped.
//
// What is computed comes from the members' own memories: blocks are moved as the parts say, history
// is read from exactly those blocks that each member attends from, and an emulated engine computes
// the piece's tags from them. So a lost, stale or misplaced block changes the answer.
//
// If members wait for each other in a cycle, PrefillCore has violated its order of pieces;
// deadlines would hide this. So a lasting cycle is a violation, and so is a step that ends by its
// own deadline when there are no faults.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/emulated/emulated_engine.h"
#include "scheduler/worker/steps/ring_steps.h"
#include "scheduler/worker/steps/step.h"
#include "tests/sim/core_process.h"
#include "tests/sim/engine_thread.h"
#include "tests/sim/network.h"

namespace skein::sim {

class JointSteps {
 public:
  JointSteps(Network* network, Verdict* verdict) : network_(network), verdict_(verdict) {}

  struct Entrant {
    Process* process = nullptr;
    EngineThread* thread = nullptr;
    std::shared_ptr<engine::EmulatedEngine> engine;
    scheduler::RunStep step;  // its only sequence has a ring part
    EngineThread::LayerDone layer_done;
    std::function<void(scheduler::StepDone)> done;
    bool over = false;
  };

  // A member made or dropped its end of a group. A meeting is named by its kPieces group; a kMoves
  // group belongs to one meeting, and kTensor groups to those of one chunk.
  void Make(const Process* process, const scheduler::OpenRing& group);
  void Drop(const Process* process, scheduler::RingKind group);
  // Ends the member's own step, if it is in one. The other members are notified, unless the
  // scenario loses the notification.
  void Abort(const Process* process, const scheduler::AbortRing& abort);
  // The same of a group that the member has not made: it will not come.
  void Refuse(const scheduler::BreakGroup& refusal);

  // A violation unless the process has made the groups of the step, and has broken none of them.
  void Enter(Entrant entrant);
  void Died(const Process* process);

  int64_t run() const { return run_; }                // to their end
  int64_t tensor_run() const { return tensor_run_; }  // of these, with tp > 1
  int64_t broken() const { return broken_; }

 private:
  using Key = std::pair<GroupId, int>;  // and the piece within its chunk
  struct Meeting {
    Key key;
    size_t size = 0;
    std::map<int, Entrant> entrants;  // by rank
    bool broken = false;
    bool running = false;
  };
  using Meetings = std::map<Key, std::shared_ptr<Meeting>>;
  struct Made {
    GroupId key;
    int rank = 0;
    std::vector<std::string> comm_addresses;  // of the group, by rank
    bool broken = false;
  };

  static const scheduler::StepSequence& SequenceOf(const Entrant& entrant) {
    return entrant.step.sequences.front();
  }
  static const scheduler::RingPart& PartOf(const Entrant& entrant) {
    return *SequenceOf(entrant).ring;
  }
  static bool Waits(const Meeting& meeting) { return !meeting.broken && !meeting.running; }
  void CheckGroups(const Entrant& entrant) const;
  void CheckDeadline(const Meeting& meeting, int rank);
  // Whether the meeting waits in a cycle: its missing members wait in other pieces, whose missing
  // members wait in turn, and so on back to it.
  bool InRing(const Meeting& meeting) const;
  std::vector<const Meeting*> WaitedFor(const Meeting& meeting) const;
  void Begin(std::shared_ptr<Meeting> meeting);
  void End(const std::shared_ptr<Meeting>& meeting, int rank, scheduler::StepDone done);
  void EndAfter(TimeUs delay, const std::shared_ptr<Meeting>& meeting, int rank,
                absl::Status status);
  void Break(const std::shared_ptr<Meeting>& meeting, const char* why);
  void WillNotCome(GroupId group, int rank);
  void CheckSamePiece(const Meeting& meeting);
  void CheckNodes(const Meeting& meeting) const;
  std::vector<scheduler::StepResult> Compute(Meeting& meeting);  // by rank
  void Move(Meeting& meeting);

  Network* network_;
  Verdict* verdict_;
  Meetings meetings_;
  std::map<std::pair<const Process*, scheduler::RingKind>, Made> opened_;
  std::set<GroupId> refused_;                   // whose other members were notified
  std::set<std::pair<GroupId, int>> refusers_;  // (group, rank), notification lost or not
  int64_t run_ = 0;
  int64_t tensor_run_ = 0;
  int64_t broken_ = 0;
};

}  // namespace skein::sim
