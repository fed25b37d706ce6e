// GroupWorld: the instances of one simulated group with their batches, KV and steps. It carries
// out what FormationSwitch orders (prepare, commit, end) as a decode-worker does, and tells how far
// it is. It decides neither what to bind (formation_driver.h) nor when a request arrives.
//
// Units. Instances that are bound form one unit; each other instance is one. A unit runs steps one
// after another. A bound unit runs steps of its own batch and, in turns by StepShare, rounds in
// which each member runs one step of what it had before; such a round takes as long as its longest
// step. What the members had before may also end before the bind, move to the group or pause
// (OwnSequences, of the order to prepare). A bind waits for the members' steps in flight; no KV
// moves.
//
// A request reserves the KV of its prompt and its whole output when it enters a batch, so nothing
// is preempted.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/base/formation_messages.h"
#include "scheduler/base/time.h"
#include "scheduler/orchestrator/groups/formation.h"
#include "scheduler/orchestrator/groups/formation_policy.h"
#include "scheduler/simulator/formations/formation_world.h"
#include "scheduler/simulator/formations/group_kv.h"
#include "scheduler/simulator/formations/group_record.h"
#include "scheduler/simulator/formations/phased_load.h"
#include "scheduler/simulator/formations/sequence_batch.h"
#include "scheduler/simulator/formations/step_time.h"
#include "scheduler/worker/group/own_pause.h"
#include "scheduler/worker/group/step_share.h"

namespace skein::scheduler {

struct WorldOptions {
  int32_t members = 4;
  SequenceLimits limits;
  // Bound steps of more tokens than ShiftTokens run in SP.
  bool shift = true;
  double own_share = 0;  // StepShare; 0: by the tokens that wait, as a worker's default
  // What a bound step takes longer when the one before it ran in the other mode (TP, SP).
  double shift_s = 0;
  int64_t copies_of_weights = 0;  // in all; 0: one at each instance
};

class GroupWorld : public FormationWorld {
 public:
  // All outlive this.
  GroupWorld(const StepProfile* profile, const WorldOptions& options,
             const std::vector<GroupRequest>* requests);

  // Binds for good, without orders: a static layout. REQUIRES: nothing has arrived.
  void BindForGood(const orchestrator::Subset& subset);
  // From here on, of a live epoch, so that other requests avoid what is bound for a need.
  void SetReason(int32_t first, orchestrator::BindReason reason) override;

  void Arrive(size_t request);
  void Prepare(int32_t member, const PrepareFormation& order) override;
  void Commit(uint64_t epoch, const orchestrator::Subset& subset, TimeUs now) override;
  void End(int32_t member, uint64_t epoch, Switch how, TimeUs now) override;
  // What members have told since the last call, in order.
  std::vector<std::pair<int32_t, FormationTold>> TakeTold() override;

  TimeUs NextEnd() const;  // of a step; kNever: none runs
  // Ends the steps that are due, then starts what can start.
  void Advance(TimeUs now);

  // For the policy; without sizes, bound and since_us.
  orchestrator::GroupLoad Load() const override;

  bool Idle() const { return live_.empty(); }
  const GroupRecord& record() const { return record_; }
  double held_share() const { return kv_.held_share(); }  // 0 when every request has ended

 private:
  struct Member {
    SequenceBatch own;
    OwnSequences how = OwnSequences::kShare;  // of the order to prepare
    TimeUs own_pause_us = kOwnPauseUs;        // likewise
    uint64_t preparing = 0;                   // epoch; 0: none
    bool prepared = false;
    bool drains = false;  // what it runs alone ends first
    bool moves = false;   // what it runs alone when it is bound goes on in the group
  };
  struct Unit {
    orchestrator::Subset subset;
    SequenceBatch batch;  // of the bound group
    StepShare share;
    uint64_t epoch = 0;
    bool bound = false;
    bool releasing = false;
    bool hard_end = false;
    orchestrator::BindReason reason = orchestrator::BindReason::kLoad;
    OwnSequences own = OwnSequences::kShare;
    TimeUs own_pause_us = kOwnPauseUs;
    TimeUs bind_us = 0;
    TimeUs until_us = kNever;  // of the step that runs
    bool runs_own = false;
    std::optional<StepKind> mode;  // of its latest bound step
    TimeUs release_us = 0;         // since when
  };
  struct Forming {
    orchestrator::Subset subset;
    OwnSequences own = OwnSequences::kShare;
    TimeUs own_pause_us = kOwnPauseUs;
    TimeUs since_us = 0;
  };

  Member& At(int32_t member) { return members_[static_cast<size_t>(member)]; }
  const Member& At(int32_t member) const { return members_[static_cast<size_t>(member)]; }
  Unit MakeUnit(const orchestrator::Subset& subset, bool bound);
  Unit& UnitOf(int32_t member);
  bool Takes(const Unit& unit, int32_t member, size_t request) const;
  bool Avoids(const Unit& unit, size_t request, int64_t fewest) const;
  int64_t FewestSequences(size_t request) const;
  void Place(size_t request, int64_t made);
  void PlaceAll(const std::vector<std::pair<size_t, int64_t>>& requests);
  void PlaceWaiting();
  int64_t Admit(SequenceBatch* batch, const orchestrator::Subset& subset);
  void TellReady();
  void Tell(int32_t member, uint64_t epoch, FormationTold::Phase phase, TimeUs cut_over_us,
            TimeUs drain_us);
  void Form(TimeUs now);
  void Merge(uint64_t epoch, const Forming& forming, TimeUs now);
  void Split(Unit* unit, TimeUs now);
  void EndStep(Unit* unit, TimeUs now);
  void Start(Unit* unit, TimeUs now);
  void StartOwn(Unit* unit, TimeUs now);
  void StartBound(Unit* unit, TimeUs now);
  bool IsForming(const Unit& unit) const;
  TimeUs Run(StepKind kind, const StepLayout& layout, StepParts extra, SequenceBatch* batch,
             TimeUs now);
  void NoteToken(const BatchSequence& sequence, int64_t index, TimeUs now);

  const StepProfile* profile_;
  const WorldOptions options_;
  const std::vector<GroupRequest>* requests_;
  GroupKv kv_;
  GroupRecord record_;
  std::map<int32_t, int64_t> shift_from_;  // by size
  std::vector<Member> members_;
  std::map<int32_t, Unit> units_;  // by first member
  std::map<uint64_t, Forming> forming_;
  std::set<std::pair<size_t, int64_t>> unplaced_;  // request, output made
  std::set<size_t> live_;
  std::vector<std::pair<int32_t, FormationTold>> told_;
};

}  // namespace skein::scheduler
