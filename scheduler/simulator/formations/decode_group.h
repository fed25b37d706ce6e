// DecodeGroup: the decode instances of one simulated node, alone or bound, with their batches, KV
// blocks and steps. As FormationWorld it carries out what FormationSwitch orders as decode-workers
// do (scheduler/worker/README.md). It decides neither what to bind nor which instance gets a
// request.
//
// Layout. A request that is placed at the lead of a bound group runs in the group's batch, and each
// rank holds a part of its heads. All others run in the batch of their instance, also while that is
// bound: then the two kinds of steps take turns (StepShare, by the tokens that wait), and a round
// of own steps takes as long as its longest. A bind waits for the steps that were launched; no KV
// moves. A sequential release waits until the group's requests have ended, those that are on their
// way included. A hard one leaves them to the lead's own batch.
//
// Launched ahead. Which sequences run in a step is settled when the step before it begins, alone
// and bound. So a request that comes during a step misses the next one, too. Of a round of own
// steps in a bound group only that it comes next is settled: each instance runs what its batch has
// when the round begins.
//
// Not simulated: other OwnSequences than kShare, preemption (a request reserves the blocks of its
// prompt and its whole output when it is placed), and the prompts that a hard release has the lead
// compute anew.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "scheduler/base/formation_messages.h"
#include "scheduler/base/time.h"
#include "scheduler/placement/freeness.h"
#include "scheduler/simulator/formations/formation_world.h"
#include "scheduler/simulator/formations/group_record.h"
#include "scheduler/simulator/workload.h"
#include "scheduler/vocabulary/decode_times.h"
#include "scheduler/worker/group/step_share.h"

namespace skein::scheduler {

struct DecodeGroupOptions {
  int32_t members = 1;
  int64_t blocks = 1;  // of each member
  int64_t block_tokens = 16;
  int64_t batch_sequences = 64;  // most of a step
  DecodeTimes times;
  std::map<int32_t, ShiftRule> shifts;  // by size; of one that is not here all steps run in TP
  double own_share = 0;                 // StepShare
};

// What became of a request after its prompt.
struct DecodeOutcome {
  int32_t instance = -1;  // it was placed at; the lead of its formation
  int32_t size = 1;       // of that formation
  TimeUs ready_us = kNever;
  TimeUs started_us = kNever;  // its first step; kNever: it needed none
  TimeUs second_us = kNever;   // token; the first one comes from prefill
  TimeUs last_us = kNever;
};

class DecodeGroup : public FormationWorld {
 public:
  // `requests` and `outcomes`, by request, outlive this.
  DecodeGroup(const DecodeGroupOptions& options, const std::vector<SimRequest>* requests,
              std::vector<DecodeOutcome>* outcomes);

  // Binds for good, without orders: a static layout. REQUIRES: nothing was placed.
  void BindForGood(const orchestrator::Subset& subset);

  // Its members as candidates, with ids from `first_id` on. One that gets nothing new has no room.
  void AddCandidates(uint64_t first_id, std::vector<DecodeCandidate>* candidates) const;
  void Place(size_t request, int32_t member);  // its KV is on its way
  // Its KV is there. REQUIRES: placed.
  void Ready(size_t request, TimeUs now);
  // Requests that wait for a place in this group.
  void SetWaiting(int64_t requests) { waiting_ = requests; }

  void SetReason(int32_t, orchestrator::BindReason) override {}  // placement heeds freeness only
  void Prepare(int32_t member, const PrepareFormation& order) override;
  void Commit(uint64_t epoch, const orchestrator::Subset& subset, TimeUs now) override;
  void End(int32_t member, uint64_t epoch, Switch how, TimeUs now) override;
  std::vector<std::pair<int32_t, FormationTold>> TakeTold() override;
  orchestrator::GroupLoad Load() const override;

  TimeUs NextEnd() const;  // of a step; kNever: none runs
  // Ends the steps that are due, then starts what can start.
  void Advance(TimeUs now);

  bool Idle() const { return sequences_.empty(); }
  int64_t finished() const { return finished_; }
  int64_t free_blocks() const;  // of all members
  // Steps by StepKind, as members count them: one of a bound group counts at each of its ranks.
  const std::array<int64_t, kStepKinds>& steps() const { return steps_; }
  double busy_instance_s() const { return busy_instance_s_; }
  // When a step ended, and how many tokens it gave. Ascending.
  const std::vector<std::pair<TimeUs, int64_t>>& tokens() const { return tokens_; }

 private:
  struct Sequence {
    int32_t member = 0;          // of its batch
    orchestrator::Subset holds;  // its KV
    int64_t blocks = 0;          // at each of these
    uint64_t epoch = 0;          // of the group that it was placed in
    bool bound = false;          // placed in a bound group
    bool joined = false;
    int64_t kv_tokens = 0;  // when its next step is settled
    int64_t lacks = 0;      // tokens that are in no settled step
    int64_t left = 0;       // tokens that are not there yet
  };
  struct Step {
    StepKind kind = StepKind::kOwn;
    std::vector<size_t> runs;
    TimeUs took_us = 0;
    double busy_instance_s = 0;
    int64_t count = 0;  // as steps()
    bool open = false;  // a round of own steps, whose sequences are not chosen yet

    bool exists() const { return open || !runs.empty(); }
  };
  struct Member {
    std::vector<size_t> own;
    int64_t free_blocks = 0;
    int64_t active = 0;      // sequences that run here or are on their way
    uint64_t preparing = 0;  // epoch; 0: none
    bool prepared = false;
  };
  struct Unit {  // instances that are bound, or one
    orchestrator::Subset subset;
    std::vector<size_t> batch;  // of the bound group
    int64_t coming = 0;         // sequences on their way to the batch
    StepShare share;
    uint64_t epoch = 0;
    bool bound = false;
    bool releasing = false;
    bool hard_end = false;
    TimeUs release_us = 0;  // since when
    TimeUs until_us = kNever;
    Step current, next;
  };
  struct Forming {
    orchestrator::Subset subset;
    TimeUs since_us = 0;
  };

  Member& At(int32_t member) { return members_[static_cast<size_t>(member)]; }
  const Member& At(int32_t member) const { return members_[static_cast<size_t>(member)]; }
  Unit MakeUnit(const orchestrator::Subset& subset, bool bound) const;
  Unit& UnitOf(int32_t member);
  const Unit& UnitOf(int32_t member) const;
  bool IsForming(const orchestrator::Subset& subset) const;
  bool Closed(int32_t member) const;
  int64_t BlocksOf(size_t request, int32_t size) const;
  void Hold(Sequence* sequence, const orchestrator::Subset& subset, int64_t blocks);
  void Free(const Sequence& sequence);
  void Tell(int32_t member, uint64_t epoch, FormationTold::Phase phase, TimeUs cut_over_us,
            TimeUs drain_us);
  void TellReady();
  void Form(TimeUs now);
  void Merge(uint64_t epoch, const Forming& forming, TimeUs now);
  bool IsOver(const Unit& unit) const;
  void Split(Unit* unit, TimeUs now);
  void JoinOwn(size_t request, Sequence* sequence);
  int64_t Waiting(const std::vector<size_t>& batch) const;
  int64_t Take(std::vector<size_t>* batch, Step* step, int64_t* kv_tokens);
  Step Settle(Unit* unit);
  Step SettleOwn(const Unit& unit);
  void EndStep(Unit* unit, TimeUs now);
  void Finish(size_t request);

  const DecodeGroupOptions options_;
  const std::vector<SimRequest>* requests_;
  std::vector<DecodeOutcome>* outcomes_;
  std::vector<Member> members_;
  std::map<int32_t, Unit> units_;  // by first member
  std::map<uint64_t, Forming> forming_;
  std::map<size_t, Sequence> sequences_;  // that live, by request
  int64_t waiting_ = 0;
  std::vector<std::pair<int32_t, FormationTold>> told_;
  std::array<int64_t, kStepKinds> steps_ = {};
  double busy_instance_s_ = 0;
  std::vector<std::pair<TimeUs, int64_t>> tokens_;
  int64_t finished_ = 0;
};

}  // namespace skein::scheduler
